from wallflower.protocol.wire import cohort_pb2 as _cohort_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeRequest(_message.Message):
    __slots__ = ("run_id", "tasks")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    def __init__(self, run_id: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("task_id", "describe", "stage", "close", "offer")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    describe: Describe
    stage: CohortStage
    close: CloseCohort
    offer: Offer
    def __init__(self, task_id: _Optional[str] = ..., describe: _Optional[_Union[Describe, _Mapping]] = ..., stage: _Optional[_Union[CohortStage, _Mapping]] = ..., close: _Optional[_Union[CloseCohort, _Mapping]] = ..., offer: _Optional[_Union[Offer, _Mapping]] = ...) -> None: ...

class Describe(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Offer(_message.Message):
    __slots__ = ("spec", "arms")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    ARMS_FIELD_NUMBER: _ClassVar[int]
    spec: _cohort_pb2.CohortSpec
    arms: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, spec: _Optional[_Union[_cohort_pb2.CohortSpec, _Mapping]] = ..., arms: _Optional[_Iterable[str]] = ...) -> None: ...

class CohortStage(_message.Message):
    __slots__ = ("spec", "users", "message")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    spec: _cohort_pb2.CohortSpec
    users: _containers.RepeatedScalarFieldContainer[str]
    message: bytes
    def __init__(self, spec: _Optional[_Union[_cohort_pb2.CohortSpec, _Mapping]] = ..., users: _Optional[_Iterable[str]] = ..., message: _Optional[bytes] = ...) -> None: ...

class CloseCohort(_message.Message):
    __slots__ = ("cohort_id",)
    COHORT_ID_FIELD_NUMBER: _ClassVar[int]
    cohort_id: str
    def __init__(self, cohort_id: _Optional[str] = ...) -> None: ...

class NodeAnswer(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[TaskAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[TaskAnswer, _Mapping]]] = ...) -> None: ...

class TaskAnswer(_message.Message):
    __slots__ = ("task_id", "description", "message", "refusal", "closed", "accepted", "lost")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    description: Description
    message: bytes
    refusal: Refusal
    closed: Closed
    accepted: Accepted
    lost: _containers.RepeatedCompositeFieldContainer[LostUsers]
    def __init__(self, task_id: _Optional[str] = ..., description: _Optional[_Union[Description, _Mapping]] = ..., message: _Optional[bytes] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., closed: _Optional[_Union[Closed, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., lost: _Optional[_Iterable[_Union[LostUsers, _Mapping]]] = ...) -> None: ...

class LostUsers(_message.Message):
    __slots__ = ("reason", "users")
    REASON_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    users: int
    def __init__(self, reason: _Optional[str] = ..., users: _Optional[int] = ...) -> None: ...

class Description(_message.Message):
    __slots__ = ("users", "polls", "answered")
    USERS_FIELD_NUMBER: _ClassVar[int]
    POLLS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedScalarFieldContainer[str]
    polls: bool
    answered: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, users: _Optional[_Iterable[str]] = ..., polls: _Optional[bool] = ..., answered: _Optional[_Iterable[str]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("code", "terms", "untouched")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    UNTOUCHED_FIELD_NUMBER: _ClassVar[int]
    code: str
    terms: bool
    untouched: bool
    def __init__(self, code: _Optional[str] = ..., terms: _Optional[bool] = ..., untouched: _Optional[bool] = ...) -> None: ...

class Closed(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("left_out", "users")
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    left_out: bytes
    users: int
    def __init__(self, left_out: _Optional[bytes] = ..., users: _Optional[int] = ...) -> None: ...
