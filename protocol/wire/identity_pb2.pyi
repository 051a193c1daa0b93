from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class EnrolmentCertificate(_message.Message):
    __slots__ = ("node_id", "public_key", "serial", "not_after", "capacity", "signature")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    NOT_AFTER_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    public_key: bytes
    serial: int
    not_after: int
    capacity: int
    signature: bytes
    def __init__(self, node_id: _Optional[str] = ..., public_key: _Optional[bytes] = ..., serial: _Optional[int] = ..., not_after: _Optional[int] = ..., capacity: _Optional[int] = ..., signature: _Optional[bytes] = ...) -> None: ...
