from wallflower.protocol.wire import cohort_pb2 as _cohort_pb2
from wallflower.protocol.wire import secure_sum_pb2 as _secure_sum_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitRequest(_message.Message):
    __slots__ = ("roster", "sealing_key", "shuffler_key")
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    SEALING_KEY_FIELD_NUMBER: _ClassVar[int]
    SHUFFLER_KEY_FIELD_NUMBER: _ClassVar[int]
    roster: _secure_sum_pb2.RosterNote
    sealing_key: bytes
    shuffler_key: bytes
    def __init__(self, roster: _Optional[_Union[_secure_sum_pb2.RosterNote, _Mapping]] = ..., sealing_key: _Optional[bytes] = ..., shuffler_key: _Optional[bytes] = ...) -> None: ...

class SubmitAnswer(_message.Message):
    __slots__ = ("users", "batch", "certificate", "signature")
    USERS_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    users: int
    batch: bytes
    certificate: bytes
    signature: bytes
    def __init__(self, users: _Optional[int] = ..., batch: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("party", "answer")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    party: str
    answer: SubmitAnswer
    def __init__(self, party: _Optional[str] = ..., answer: _Optional[_Union[SubmitAnswer, _Mapping]] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("spec", "roster", "batches", "sealing_key", "unnamed", "users")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    SEALING_KEY_FIELD_NUMBER: _ClassVar[int]
    UNNAMED_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    spec: _cohort_pb2.CohortSpec
    roster: _secure_sum_pb2.RosterNote
    batches: _containers.RepeatedCompositeFieldContainer[Batch]
    sealing_key: bytes
    unnamed: _containers.RepeatedScalarFieldContainer[bytes]
    users: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, spec: _Optional[_Union[_cohort_pb2.CohortSpec, _Mapping]] = ..., roster: _Optional[_Union[_secure_sum_pb2.RosterNote, _Mapping]] = ..., batches: _Optional[_Iterable[_Union[Batch, _Mapping]]] = ..., sealing_key: _Optional[bytes] = ..., unnamed: _Optional[_Iterable[bytes]] = ..., users: _Optional[_Iterable[int]] = ...) -> None: ...

class ReleaseAnswer(_message.Message):
    __slots__ = ("messages", "parties", "refused", "refusal", "left_out")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class LeftOutEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    messages: bytes
    parties: _containers.RepeatedScalarFieldContainer[str]
    refused: _containers.ScalarMap[str, str]
    refusal: str
    left_out: _containers.ScalarMap[int, str]
    def __init__(self, messages: _Optional[bytes] = ..., parties: _Optional[_Iterable[str]] = ..., refused: _Optional[_Mapping[str, str]] = ..., refusal: _Optional[str] = ..., left_out: _Optional[_Mapping[int, str]] = ...) -> None: ...

class ShuffleState(_message.Message):
    __slots__ = ("seal", "opening_key")
    SEAL_FIELD_NUMBER: _ClassVar[int]
    OPENING_KEY_FIELD_NUMBER: _ClassVar[int]
    seal: str
    opening_key: bytes
    def __init__(self, seal: _Optional[str] = ..., opening_key: _Optional[bytes] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("part",)
    PART_FIELD_NUMBER: _ClassVar[int]
    part: bytes
    def __init__(self, part: _Optional[bytes] = ...) -> None: ...
