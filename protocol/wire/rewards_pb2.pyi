from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class PullRequest(_message.Message):
    __slots__ = ("run_id", "cohort_id", "batch", "arm", "arm_name", "users")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    COHORT_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ARM_FIELD_NUMBER: _ClassVar[int]
    ARM_NAME_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    cohort_id: str
    batch: int
    arm: int
    arm_name: str
    users: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, run_id: _Optional[str] = ..., cohort_id: _Optional[str] = ..., batch: _Optional[int] = ..., arm: _Optional[int] = ..., arm_name: _Optional[str] = ..., users: _Optional[_Iterable[str]] = ...) -> None: ...

class Reward(_message.Message):
    __slots__ = ("user", "value", "failure")
    USER_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    user: str
    value: float
    failure: str
    def __init__(self, user: _Optional[str] = ..., value: _Optional[float] = ..., failure: _Optional[str] = ...) -> None: ...
