from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Stage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STAGE_UNSPECIFIED: _ClassVar[Stage]
    STAGE_ADVERTISE: _ClassVar[Stage]
    STAGE_SHARE: _ClassVar[Stage]
    STAGE_MASK: _ClassVar[Stage]
    STAGE_CONFIRM: _ClassVar[Stage]
    STAGE_UNMASK: _ClassVar[Stage]
    STAGE_ENLIST: _ClassVar[Stage]
    STAGE_DEAL: _ClassVar[Stage]
    STAGE_CHECK: _ClassVar[Stage]
    STAGE_SEAL: _ClassVar[Stage]
    STAGE_OPEN: _ClassVar[Stage]
    STAGE_SUBMIT: _ClassVar[Stage]
    STAGE_RELEASE: _ClassVar[Stage]
STAGE_UNSPECIFIED: Stage
STAGE_ADVERTISE: Stage
STAGE_SHARE: Stage
STAGE_MASK: Stage
STAGE_CONFIRM: Stage
STAGE_UNMASK: Stage
STAGE_ENLIST: Stage
STAGE_DEAL: Stage
STAGE_CHECK: Stage
STAGE_SEAL: Stage
STAGE_OPEN: Stage
STAGE_SUBMIT: Stage
STAGE_RELEASE: Stage

class Envelope(_message.Message):
    __slots__ = ("stage", "context", "sender", "receiver", "payload", "checksum")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    stage: Stage
    context: bytes
    sender: str
    receiver: str
    payload: bytes
    checksum: bytes
    def __init__(self, stage: _Optional[_Union[Stage, str]] = ..., context: _Optional[bytes] = ..., sender: _Optional[str] = ..., receiver: _Optional[str] = ..., payload: _Optional[bytes] = ..., checksum: _Optional[bytes] = ...) -> None: ...

class Roster(_message.Message):
    __slots__ = ("parties", "users")
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    parties: _containers.RepeatedScalarFieldContainer[str]
    users: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, parties: _Optional[_Iterable[str]] = ..., users: _Optional[_Iterable[int]] = ...) -> None: ...

class RosterNote(_message.Message):
    __slots__ = ("digest", "size", "roster")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    size: int
    roster: bytes
    def __init__(self, digest: _Optional[bytes] = ..., size: _Optional[int] = ..., roster: _Optional[bytes] = ...) -> None: ...

class PartyKey(_message.Message):
    __slots__ = ("key", "certificate", "signature", "mask_key")
    KEY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    MASK_KEY_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    certificate: bytes
    signature: bytes
    mask_key: bytes
    def __init__(self, key: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., mask_key: _Optional[bytes] = ...) -> None: ...

class AdvertiseRequest(_message.Message):
    __slots__ = ("invited",)
    INVITED_FIELD_NUMBER: _ClassVar[int]
    invited: RosterNote
    def __init__(self, invited: _Optional[_Union[RosterNote, _Mapping]] = ...) -> None: ...

class ShareRequest(_message.Message):
    __slots__ = ("roster", "neighbours", "keys", "own_mask_key")
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    OWN_MASK_KEY_FIELD_NUMBER: _ClassVar[int]
    roster: RosterNote
    neighbours: _containers.RepeatedScalarFieldContainer[str]
    keys: _containers.RepeatedCompositeFieldContainer[PartyKey]
    own_mask_key: bytes
    def __init__(self, roster: _Optional[_Union[RosterNote, _Mapping]] = ..., neighbours: _Optional[_Iterable[str]] = ..., keys: _Optional[_Iterable[_Union[PartyKey, _Mapping]]] = ..., own_mask_key: _Optional[bytes] = ...) -> None: ...

class ShareAnswer(_message.Message):
    __slots__ = ("salt", "users", "sealed")
    SALT_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    salt: bytes
    users: int
    sealed: bytes
    def __init__(self, salt: _Optional[bytes] = ..., users: _Optional[int] = ..., sealed: _Optional[bytes] = ...) -> None: ...

class SurvivorSet(_message.Message):
    __slots__ = ("parties", "users", "roster")
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    parties: int
    users: int
    roster: bytes
    def __init__(self, parties: _Optional[int] = ..., users: _Optional[int] = ..., roster: _Optional[bytes] = ...) -> None: ...

class MaskRequest(_message.Message):
    __slots__ = ("sharers", "senders", "salts", "users", "sealed")
    SHARERS_FIELD_NUMBER: _ClassVar[int]
    SENDERS_FIELD_NUMBER: _ClassVar[int]
    SALTS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    sharers: SurvivorSet
    senders: _containers.RepeatedScalarFieldContainer[int]
    salts: bytes
    users: _containers.RepeatedScalarFieldContainer[int]
    sealed: bytes
    def __init__(self, sharers: _Optional[_Union[SurvivorSet, _Mapping]] = ..., senders: _Optional[_Iterable[int]] = ..., salts: _Optional[bytes] = ..., users: _Optional[_Iterable[int]] = ..., sealed: _Optional[bytes] = ...) -> None: ...

class MaskAnswer(_message.Message):
    __slots__ = ("masked",)
    MASKED_FIELD_NUMBER: _ClassVar[int]
    masked: int
    def __init__(self, masked: _Optional[int] = ...) -> None: ...

class ConfirmRequest(_message.Message):
    __slots__ = ("survivors",)
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    survivors: SurvivorSet
    def __init__(self, survivors: _Optional[_Union[SurvivorSet, _Mapping]] = ...) -> None: ...

class ConfirmAnswer(_message.Message):
    __slots__ = ("signature",)
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    signature: bytes
    def __init__(self, signature: _Optional[bytes] = ...) -> None: ...

class UnmaskRequest(_message.Message):
    __slots__ = ("survivors", "present", "dropped", "confirmed", "signatures")
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    survivors: SurvivorSet
    present: _containers.RepeatedScalarFieldContainer[int]
    dropped: _containers.RepeatedScalarFieldContainer[int]
    confirmed: _containers.RepeatedScalarFieldContainer[int]
    signatures: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, survivors: _Optional[_Union[SurvivorSet, _Mapping]] = ..., present: _Optional[_Iterable[int]] = ..., dropped: _Optional[_Iterable[int]] = ..., confirmed: _Optional[_Iterable[int]] = ..., signatures: _Optional[_Iterable[bytes]] = ...) -> None: ...

class UnmaskAnswer(_message.Message):
    __slots__ = ("self_shares", "mask_shares")
    SELF_SHARES_FIELD_NUMBER: _ClassVar[int]
    MASK_SHARES_FIELD_NUMBER: _ClassVar[int]
    self_shares: _containers.RepeatedScalarFieldContainer[bytes]
    mask_shares: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, self_shares: _Optional[_Iterable[bytes]] = ..., mask_shares: _Optional[_Iterable[bytes]] = ...) -> None: ...
