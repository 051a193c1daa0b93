from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VisitorPoll(_message.Message):
    __slots__ = ("version", "run_id", "visitor", "arrival", "certificate", "signature", "answer")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    VISITOR_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    version: int
    run_id: str
    visitor: str
    arrival: bytes
    certificate: bytes
    signature: bytes
    answer: bytes
    def __init__(self, version: _Optional[int] = ..., run_id: _Optional[str] = ..., visitor: _Optional[str] = ..., arrival: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., answer: _Optional[bytes] = ...) -> None: ...

class VisitorReply(_message.Message):
    __slots__ = ("seat", "no_seat", "taken", "refused")
    SEAT_FIELD_NUMBER: _ClassVar[int]
    NO_SEAT_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    seat: Seat
    no_seat: NoSeat
    taken: AnswerTaken
    refused: PollRefused
    def __init__(self, seat: _Optional[_Union[Seat, _Mapping]] = ..., no_seat: _Optional[_Union[NoSeat, _Mapping]] = ..., taken: _Optional[_Union[AnswerTaken, _Mapping]] = ..., refused: _Optional[_Union[PollRefused, _Mapping]] = ...) -> None: ...

class Seat(_message.Message):
    __slots__ = ("request", "arms")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ARMS_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    arms: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request: _Optional[bytes] = ..., arms: _Optional[_Iterable[str]] = ...) -> None: ...

class NoSeat(_message.Message):
    __slots__ = ("arm", "arm_name", "reason")
    ARM_FIELD_NUMBER: _ClassVar[int]
    ARM_NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    arm: int
    arm_name: str
    reason: str
    def __init__(self, arm: _Optional[int] = ..., arm_name: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class AnswerTaken(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PollRefused(_message.Message):
    __slots__ = ("code", "again")
    CODE_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    code: str
    again: bool
    def __init__(self, code: _Optional[str] = ..., again: _Optional[bool] = ...) -> None: ...
