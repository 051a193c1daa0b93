from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromNode(_message.Message):
    __slots__ = ("proof", "answer", "heartbeat")
    PROOF_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    proof: Proof
    answer: PendingAnswer
    heartbeat: Heartbeat
    def __init__(self, proof: _Optional[_Union[Proof, _Mapping]] = ..., answer: _Optional[_Union[PendingAnswer, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class FromServer(_message.Message):
    __slots__ = ("challenge", "welcome", "request", "abandon", "heartbeat", "run_over")
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ABANDON_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RUN_OVER_FIELD_NUMBER: _ClassVar[int]
    challenge: Challenge
    welcome: Welcome
    request: PendingRequest
    abandon: Abandon
    heartbeat: Heartbeat
    run_over: RunOver
    def __init__(self, challenge: _Optional[_Union[Challenge, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., request: _Optional[_Union[PendingRequest, _Mapping]] = ..., abandon: _Optional[_Union[Abandon, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., run_over: _Optional[_Union[RunOver, _Mapping]] = ...) -> None: ...

class Handshake(_message.Message):
    __slots__ = ("hello", "token_proof")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    TOKEN_PROOF_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    token_proof: bytes
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., token_proof: _Optional[bytes] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("version", "run_id", "node_id", "public_key", "certificate", "nonce", "token_expiry", "instance", "token_holder")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_EXPIRY_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_HOLDER_FIELD_NUMBER: _ClassVar[int]
    version: int
    run_id: str
    node_id: str
    public_key: bytes
    certificate: bytes
    nonce: bytes
    token_expiry: int
    instance: bytes
    token_holder: str
    def __init__(self, version: _Optional[int] = ..., run_id: _Optional[str] = ..., node_id: _Optional[str] = ..., public_key: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., nonce: _Optional[bytes] = ..., token_expiry: _Optional[int] = ..., instance: _Optional[bytes] = ..., token_holder: _Optional[str] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("nonce", "server_fingerprint", "server_proof")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SERVER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SERVER_PROOF_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    server_fingerprint: bytes
    server_proof: bytes
    def __init__(self, nonce: _Optional[bytes] = ..., server_fingerprint: _Optional[bytes] = ..., server_proof: _Optional[bytes] = ...) -> None: ...

class Proof(_message.Message):
    __slots__ = ("signature", "token_proof")
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_PROOF_FIELD_NUMBER: _ClassVar[int]
    signature: bytes
    token_proof: bytes
    def __init__(self, signature: _Optional[bytes] = ..., token_proof: _Optional[bytes] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("heartbeat_ms", "window", "most_bytes", "trust_label")
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    MOST_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRUST_LABEL_FIELD_NUMBER: _ClassVar[int]
    heartbeat_ms: int
    window: int
    most_bytes: int
    trust_label: str
    def __init__(self, heartbeat_ms: _Optional[int] = ..., window: _Optional[int] = ..., most_bytes: _Optional[int] = ..., trust_label: _Optional[str] = ...) -> None: ...

class PendingRequest(_message.Message):
    __slots__ = ("request_id", "body")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    body: bytes
    def __init__(self, request_id: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class PendingAnswer(_message.Message):
    __slots__ = ("request_id", "body", "failure")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    body: bytes
    failure: str
    def __init__(self, request_id: _Optional[str] = ..., body: _Optional[bytes] = ..., failure: _Optional[str] = ...) -> None: ...

class Abandon(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("number", "next_ms")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NEXT_MS_FIELD_NUMBER: _ClassVar[int]
    number: int
    next_ms: int
    def __init__(self, number: _Optional[int] = ..., next_ms: _Optional[int] = ...) -> None: ...

class RunOver(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class PollHandshake(_message.Message):
    __slots__ = ("hello", "at_ms", "server_fingerprint", "digest", "proof")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    SERVER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    at_ms: int
    server_fingerprint: bytes
    digest: bytes
    proof: Proof
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., at_ms: _Optional[int] = ..., server_fingerprint: _Optional[bytes] = ..., digest: _Optional[bytes] = ..., proof: _Optional[_Union[Proof, _Mapping]] = ...) -> None: ...

class PollRequest(_message.Message):
    __slots__ = ("answers", "prepared")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[PendingAnswer]
    prepared: _containers.RepeatedCompositeFieldContainer[PreparedAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[PendingAnswer, _Mapping]]] = ..., prepared: _Optional[_Iterable[_Union[PreparedAnswer, _Mapping]]] = ...) -> None: ...

class PreparedAnswer(_message.Message):
    __slots__ = ("request", "answer")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    answer: bytes
    def __init__(self, request: _Optional[bytes] = ..., answer: _Optional[bytes] = ...) -> None: ...

class PollReply(_message.Message):
    __slots__ = ("body", "server_proof")
    BODY_FIELD_NUMBER: _ClassVar[int]
    SERVER_PROOF_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    server_proof: bytes
    def __init__(self, body: _Optional[bytes] = ..., server_proof: _Optional[bytes] = ...) -> None: ...

class PollReplyBody(_message.Message):
    __slots__ = ("requests", "not_taken", "next_ms", "most_bytes", "trust_label", "run_over")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NOT_TAKEN_FIELD_NUMBER: _ClassVar[int]
    NEXT_MS_FIELD_NUMBER: _ClassVar[int]
    MOST_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRUST_LABEL_FIELD_NUMBER: _ClassVar[int]
    RUN_OVER_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[PendingRequest]
    not_taken: _containers.RepeatedScalarFieldContainer[str]
    next_ms: int
    most_bytes: int
    trust_label: str
    run_over: str
    def __init__(self, requests: _Optional[_Iterable[_Union[PendingRequest, _Mapping]]] = ..., not_taken: _Optional[_Iterable[str]] = ..., next_ms: _Optional[int] = ..., most_bytes: _Optional[int] = ..., trust_label: _Optional[str] = ..., run_over: _Optional[str] = ...) -> None: ...
