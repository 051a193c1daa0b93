from wallflower.protocol.wire import cohort_pb2 as _cohort_pb2
from wallflower.protocol.wire import secure_sum_pb2 as _secure_sum_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ServerState(_message.Message):
    __slots__ = ("spec", "roster", "stage", "awaited", "lost", "members", "keys", "uploads", "closed", "numbers", "confirmations", "unmasks", "own")
    class LostEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class KeysEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    class UploadsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    class NumbersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class ConfirmationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    class UnmasksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    SPEC_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    CONFIRMATIONS_FIELD_NUMBER: _ClassVar[int]
    UNMASKS_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    spec: _cohort_pb2.CohortSpec
    roster: _secure_sum_pb2.Roster
    stage: _secure_sum_pb2.Stage
    awaited: _containers.RepeatedScalarFieldContainer[str]
    lost: _containers.ScalarMap[str, str]
    members: _containers.RepeatedScalarFieldContainer[str]
    keys: _containers.ScalarMap[str, bytes]
    uploads: _containers.ScalarMap[str, bytes]
    closed: _containers.RepeatedScalarFieldContainer[str]
    numbers: _containers.ScalarMap[str, int]
    confirmations: _containers.ScalarMap[str, bytes]
    unmasks: _containers.ScalarMap[str, bytes]
    own: bytes
    def __init__(self, spec: _Optional[_Union[_cohort_pb2.CohortSpec, _Mapping]] = ..., roster: _Optional[_Union[_secure_sum_pb2.Roster, _Mapping]] = ..., stage: _Optional[_Union[_secure_sum_pb2.Stage, str]] = ..., awaited: _Optional[_Iterable[str]] = ..., lost: _Optional[_Mapping[str, str]] = ..., members: _Optional[_Iterable[str]] = ..., keys: _Optional[_Mapping[str, bytes]] = ..., uploads: _Optional[_Mapping[str, bytes]] = ..., closed: _Optional[_Iterable[str]] = ..., numbers: _Optional[_Mapping[str, int]] = ..., confirmations: _Optional[_Mapping[str, bytes]] = ..., unmasks: _Optional[_Mapping[str, bytes]] = ..., own: _Optional[bytes] = ...) -> None: ...

class ClientState(_message.Message):
    __slots__ = ("spec", "party", "stage", "context", "roster", "roster_size", "private_key", "whole_run", "answers", "own")
    class AnswersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: Answered
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[Answered, _Mapping]] = ...) -> None: ...
    SPEC_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    ROSTER_SIZE_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_KEY_FIELD_NUMBER: _ClassVar[int]
    WHOLE_RUN_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    spec: _cohort_pb2.CohortSpec
    party: str
    stage: _secure_sum_pb2.Stage
    context: bytes
    roster: bytes
    roster_size: int
    private_key: bytes
    whole_run: bool
    answers: _containers.MessageMap[int, Answered]
    own: bytes
    def __init__(self, spec: _Optional[_Union[_cohort_pb2.CohortSpec, _Mapping]] = ..., party: _Optional[str] = ..., stage: _Optional[_Union[_secure_sum_pb2.Stage, str]] = ..., context: _Optional[bytes] = ..., roster: _Optional[bytes] = ..., roster_size: _Optional[int] = ..., private_key: _Optional[bytes] = ..., whole_run: _Optional[bool] = ..., answers: _Optional[_Mapping[int, Answered]] = ..., own: _Optional[bytes] = ...) -> None: ...

class Answered(_message.Message):
    __slots__ = ("request", "answer")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    answer: bytes
    def __init__(self, request: _Optional[bytes] = ..., answer: _Optional[bytes] = ...) -> None: ...

class PlusState(_message.Message):
    __slots__ = ("mask_key", "self_seed", "value", "users", "share_request", "senders", "shares", "sharers", "survivors", "invited", "invited_size")
    class SharesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: bytes
        def __init__(self, key: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...
    MASK_KEY_FIELD_NUMBER: _ClassVar[int]
    SELF_SEED_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    SHARE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    SENDERS_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    SHARERS_FIELD_NUMBER: _ClassVar[int]
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    INVITED_FIELD_NUMBER: _ClassVar[int]
    INVITED_SIZE_FIELD_NUMBER: _ClassVar[int]
    mask_key: bytes
    self_seed: bytes
    value: int
    users: int
    share_request: _secure_sum_pb2.ShareRequest
    senders: _containers.RepeatedScalarFieldContainer[int]
    shares: _containers.ScalarMap[int, bytes]
    sharers: bytes
    survivors: bytes
    invited: bytes
    invited_size: int
    def __init__(self, mask_key: _Optional[bytes] = ..., self_seed: _Optional[bytes] = ..., value: _Optional[int] = ..., users: _Optional[int] = ..., share_request: _Optional[_Union[_secure_sum_pb2.ShareRequest, _Mapping]] = ..., senders: _Optional[_Iterable[int]] = ..., shares: _Optional[_Mapping[int, bytes]] = ..., sharers: _Optional[bytes] = ..., survivors: _Optional[bytes] = ..., invited: _Optional[bytes] = ..., invited_size: _Optional[int] = ...) -> None: ...
