from wallflower.protocol.wire import cohort_pb2 as _cohort_pb2
from wallflower.protocol.wire import secure_sum_pb2 as _secure_sum_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EnlistRequest(_message.Message):
    __slots__ = ("roster",)
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    roster: _secure_sum_pb2.RosterNote
    def __init__(self, roster: _Optional[_Union[_secure_sum_pb2.RosterNote, _Mapping]] = ...) -> None: ...

class MemberKey(_message.Message):
    __slots__ = ("key", "certificate", "signature")
    KEY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    certificate: bytes
    signature: bytes
    def __init__(self, key: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class DealtCommittee(_message.Message):
    __slots__ = ("members", "places", "keys")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedScalarFieldContainer[str]
    places: _containers.RepeatedScalarFieldContainer[int]
    keys: _containers.RepeatedCompositeFieldContainer[MemberKey]
    def __init__(self, members: _Optional[_Iterable[str]] = ..., places: _Optional[_Iterable[int]] = ..., keys: _Optional[_Iterable[_Union[MemberKey, _Mapping]]] = ...) -> None: ...

class DealRequest(_message.Message):
    __slots__ = ("roster", "committee")
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    COMMITTEE_FIELD_NUMBER: _ClassVar[int]
    roster: _secure_sum_pb2.RosterNote
    committee: bytes
    def __init__(self, roster: _Optional[_Union[_secure_sum_pb2.RosterNote, _Mapping]] = ..., committee: _Optional[bytes] = ...) -> None: ...

class DealerStatement(_message.Message):
    __slots__ = ("dealer", "constant", "proof", "rest", "certificate", "signature")
    DEALER_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    REST_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    dealer: str
    constant: bytes
    proof: bytes
    rest: bytes
    certificate: bytes
    signature: bytes
    def __init__(self, dealer: _Optional[str] = ..., constant: _Optional[bytes] = ..., proof: _Optional[bytes] = ..., rest: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class DealAnswer(_message.Message):
    __slots__ = ("commitments", "sealed", "proof", "certificate", "signature")
    COMMITMENTS_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    commitments: bytes
    sealed: bytes
    proof: bytes
    certificate: bytes
    signature: bytes
    def __init__(self, commitments: _Optional[bytes] = ..., sealed: _Optional[bytes] = ..., proof: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class DealtShare(_message.Message):
    __slots__ = ("statement", "commitments", "sealed", "seals", "path")
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    COMMITMENTS_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    SEALS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    statement: DealerStatement
    commitments: bytes
    sealed: bytes
    seals: bytes
    path: bytes
    def __init__(self, statement: _Optional[_Union[DealerStatement, _Mapping]] = ..., commitments: _Optional[bytes] = ..., sealed: _Optional[bytes] = ..., seals: _Optional[bytes] = ..., path: _Optional[bytes] = ...) -> None: ...

class CheckRequest(_message.Message):
    __slots__ = ("roster", "committee", "committee_digest", "place", "shares", "key")
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    COMMITTEE_FIELD_NUMBER: _ClassVar[int]
    COMMITTEE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    roster: _secure_sum_pb2.RosterNote
    committee: bytes
    committee_digest: bytes
    place: int
    shares: _containers.RepeatedCompositeFieldContainer[DealtShare]
    key: bytes
    def __init__(self, roster: _Optional[_Union[_secure_sum_pb2.RosterNote, _Mapping]] = ..., committee: _Optional[bytes] = ..., committee_digest: _Optional[bytes] = ..., place: _Optional[int] = ..., shares: _Optional[_Iterable[_Union[DealtShare, _Mapping]]] = ..., key: _Optional[bytes] = ...) -> None: ...

class ShareComplaint(_message.Message):
    __slots__ = ("dealer", "shared", "proof")
    DEALER_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    dealer: str
    shared: bytes
    proof: bytes
    def __init__(self, dealer: _Optional[str] = ..., shared: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class CheckAnswer(_message.Message):
    __slots__ = ("complaints",)
    COMPLAINTS_FIELD_NUMBER: _ClassVar[int]
    complaints: _containers.RepeatedCompositeFieldContainer[ShareComplaint]
    def __init__(self, complaints: _Optional[_Iterable[_Union[ShareComplaint, _Mapping]]] = ...) -> None: ...

class DealingNote(_message.Message):
    __slots__ = ("name", "key", "evidence")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    key: bytes
    evidence: bytes
    def __init__(self, name: _Optional[bytes] = ..., key: _Optional[bytes] = ..., evidence: _Optional[bytes] = ...) -> None: ...

class DealingEvidence(_message.Message):
    __slots__ = ("spec", "roster", "committee", "accepted")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    COMMITTEE_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    spec: _cohort_pb2.CohortSpec
    roster: _secure_sum_pb2.RosterNote
    committee: bytes
    accepted: _containers.RepeatedCompositeFieldContainer[DealerStatement]
    def __init__(self, spec: _Optional[_Union[_cohort_pb2.CohortSpec, _Mapping]] = ..., roster: _Optional[_Union[_secure_sum_pb2.RosterNote, _Mapping]] = ..., committee: _Optional[bytes] = ..., accepted: _Optional[_Iterable[_Union[DealerStatement, _Mapping]]] = ...) -> None: ...

class SealRequest(_message.Message):
    __slots__ = ("roster", "dealing")
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    DEALING_FIELD_NUMBER: _ClassVar[int]
    roster: _secure_sum_pb2.RosterNote
    dealing: DealingNote
    def __init__(self, roster: _Optional[_Union[_secure_sum_pb2.RosterNote, _Mapping]] = ..., dealing: _Optional[_Union[DealingNote, _Mapping]] = ...) -> None: ...

class SealAnswer(_message.Message):
    __slots__ = ("one", "two", "users", "proof", "range", "certificate", "signature")
    ONE_FIELD_NUMBER: _ClassVar[int]
    TWO_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    one: bytes
    two: bytes
    users: int
    proof: bytes
    range: bytes
    certificate: bytes
    signature: bytes
    def __init__(self, one: _Optional[bytes] = ..., two: _Optional[bytes] = ..., users: _Optional[int] = ..., proof: _Optional[bytes] = ..., range: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class OpenRequest(_message.Message):
    __slots__ = ("roster", "dealing_id", "dealing", "dealers", "contributors", "users", "sum", "senders", "sealed")
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    DEALING_ID_FIELD_NUMBER: _ClassVar[int]
    DEALING_FIELD_NUMBER: _ClassVar[int]
    DEALERS_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    SENDERS_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    roster: _secure_sum_pb2.RosterNote
    dealing_id: str
    dealing: bytes
    dealers: _containers.RepeatedScalarFieldContainer[str]
    contributors: int
    users: int
    sum: bytes
    senders: _containers.RepeatedScalarFieldContainer[str]
    sealed: _containers.RepeatedCompositeFieldContainer[SealAnswer]
    def __init__(self, roster: _Optional[_Union[_secure_sum_pb2.RosterNote, _Mapping]] = ..., dealing_id: _Optional[str] = ..., dealing: _Optional[bytes] = ..., dealers: _Optional[_Iterable[str]] = ..., contributors: _Optional[int] = ..., users: _Optional[int] = ..., sum: _Optional[bytes] = ..., senders: _Optional[_Iterable[str]] = ..., sealed: _Optional[_Iterable[_Union[SealAnswer, _Mapping]]] = ...) -> None: ...

class OpenAnswer(_message.Message):
    __slots__ = ("share", "proof")
    SHARE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    share: bytes
    proof: bytes
    def __init__(self, share: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class DealingState(_message.Message):
    __slots__ = ("spec", "roster", "committee", "accepted", "commitments", "members")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    COMMITTEE_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    COMMITMENTS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    spec: _cohort_pb2.CohortSpec
    roster: _secure_sum_pb2.RosterNote
    committee: bytes
    accepted: _containers.RepeatedCompositeFieldContainer[DealerStatement]
    commitments: bytes
    members: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, spec: _Optional[_Union[_cohort_pb2.CohortSpec, _Mapping]] = ..., roster: _Optional[_Union[_secure_sum_pb2.RosterNote, _Mapping]] = ..., committee: _Optional[bytes] = ..., accepted: _Optional[_Iterable[_Union[DealerStatement, _Mapping]]] = ..., commitments: _Optional[bytes] = ..., members: _Optional[_Iterable[str]] = ...) -> None: ...

class DealingProgress(_message.Message):
    __slots__ = ("keys", "dealings", "checked", "wrong", "committee", "asked")
    class KeysEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    class DealingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    KEYS_FIELD_NUMBER: _ClassVar[int]
    DEALINGS_FIELD_NUMBER: _ClassVar[int]
    CHECKED_FIELD_NUMBER: _ClassVar[int]
    WRONG_FIELD_NUMBER: _ClassVar[int]
    COMMITTEE_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.ScalarMap[str, bytes]
    dealings: _containers.ScalarMap[str, bytes]
    checked: _containers.RepeatedScalarFieldContainer[str]
    wrong: _containers.RepeatedScalarFieldContainer[str]
    committee: bytes
    asked: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, keys: _Optional[_Mapping[str, bytes]] = ..., dealings: _Optional[_Mapping[str, bytes]] = ..., checked: _Optional[_Iterable[str]] = ..., wrong: _Optional[_Iterable[str]] = ..., committee: _Optional[bytes] = ..., asked: _Optional[_Iterable[str]] = ...) -> None: ...

class SealedServerState(_message.Message):
    __slots__ = ("dealing", "one", "two", "users", "openings", "left_out")
    class OpeningsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    class LeftOutEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DEALING_FIELD_NUMBER: _ClassVar[int]
    ONE_FIELD_NUMBER: _ClassVar[int]
    TWO_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    OPENINGS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    dealing: DealingState
    one: bytes
    two: bytes
    users: int
    openings: _containers.ScalarMap[str, bytes]
    left_out: _containers.ScalarMap[str, str]
    def __init__(self, dealing: _Optional[_Union[DealingState, _Mapping]] = ..., one: _Optional[bytes] = ..., two: _Optional[bytes] = ..., users: _Optional[int] = ..., openings: _Optional[_Mapping[str, bytes]] = ..., left_out: _Optional[_Mapping[str, str]] = ...) -> None: ...

class MemberState(_message.Message):
    __slots__ = ("dealing_id", "context", "committee", "threshold", "accepted", "place", "threat", "shares", "key")
    class SharesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: HeldShare
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[HeldShare, _Mapping]] = ...) -> None: ...
    DEALING_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    COMMITTEE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    THREAT_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    dealing_id: str
    context: bytes
    committee: bytes
    threshold: int
    accepted: int
    place: int
    threat: bytes
    shares: _containers.MessageMap[str, HeldShare]
    key: bytes
    def __init__(self, dealing_id: _Optional[str] = ..., context: _Optional[bytes] = ..., committee: _Optional[bytes] = ..., threshold: _Optional[int] = ..., accepted: _Optional[int] = ..., place: _Optional[int] = ..., threat: _Optional[bytes] = ..., shares: _Optional[_Mapping[str, HeldShare]] = ..., key: _Optional[bytes] = ...) -> None: ...

class EnlistState(_message.Message):
    __slots__ = ("secret", "own")
    SECRET_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    secret: bytes
    own: HeldShare
    def __init__(self, secret: _Optional[bytes] = ..., own: _Optional[_Union[HeldShare, _Mapping]] = ...) -> None: ...

class HeldShare(_message.Message):
    __slots__ = ("statement", "share")
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    statement: bytes
    share: bytes
    def __init__(self, statement: _Optional[bytes] = ..., share: _Optional[bytes] = ...) -> None: ...
