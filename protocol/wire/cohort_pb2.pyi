from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Rational(_message.Message):
    __slots__ = ("numerator", "denominator")
    NUMERATOR_FIELD_NUMBER: _ClassVar[int]
    DENOMINATOR_FIELD_NUMBER: _ClassVar[int]
    numerator: int
    denominator: int
    def __init__(self, numerator: _Optional[int] = ..., denominator: _Optional[int] = ...) -> None: ...

class Threat(_message.Message):
    __slots__ = ("corrupt", "dropout", "malicious_server")
    CORRUPT_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_FIELD_NUMBER: _ClassVar[int]
    MALICIOUS_SERVER_FIELD_NUMBER: _ClassVar[int]
    corrupt: Rational
    dropout: Rational
    malicious_server: bool
    def __init__(self, corrupt: _Optional[_Union[Rational, _Mapping]] = ..., dropout: _Optional[_Union[Rational, _Mapping]] = ..., malicious_server: _Optional[bool] = ...) -> None: ...

class RewardRange(_message.Message):
    __slots__ = ("low", "high", "unit")
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    low: str
    high: str
    unit: str
    def __init__(self, low: _Optional[str] = ..., high: _Optional[str] = ..., unit: _Optional[str] = ...) -> None: ...

class CohortSpec(_message.Message):
    __slots__ = ("run_id", "batch", "arm", "cohort_id", "mechanism", "epsilon", "scale", "wrap_probability", "cohort_size", "honest_floor", "quorum", "backend", "modulus", "threat", "arm_name", "proved_inputs", "reward_range", "window_ms", "admission")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ARM_FIELD_NUMBER: _ClassVar[int]
    COHORT_ID_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    WRAP_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    COHORT_SIZE_FIELD_NUMBER: _ClassVar[int]
    HONEST_FLOOR_FIELD_NUMBER: _ClassVar[int]
    QUORUM_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    MODULUS_FIELD_NUMBER: _ClassVar[int]
    THREAT_FIELD_NUMBER: _ClassVar[int]
    ARM_NAME_FIELD_NUMBER: _ClassVar[int]
    PROVED_INPUTS_FIELD_NUMBER: _ClassVar[int]
    REWARD_RANGE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    ADMISSION_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    batch: int
    arm: int
    cohort_id: str
    mechanism: str
    epsilon: Rational
    scale: Rational
    wrap_probability: Rational
    cohort_size: int
    honest_floor: int
    quorum: int
    backend: str
    modulus: int
    threat: Threat
    arm_name: str
    proved_inputs: bool
    reward_range: RewardRange
    window_ms: int
    admission: str
    def __init__(self, run_id: _Optional[str] = ..., batch: _Optional[int] = ..., arm: _Optional[int] = ..., cohort_id: _Optional[str] = ..., mechanism: _Optional[str] = ..., epsilon: _Optional[_Union[Rational, _Mapping]] = ..., scale: _Optional[_Union[Rational, _Mapping]] = ..., wrap_probability: _Optional[_Union[Rational, _Mapping]] = ..., cohort_size: _Optional[int] = ..., honest_floor: _Optional[int] = ..., quorum: _Optional[int] = ..., backend: _Optional[str] = ..., modulus: _Optional[int] = ..., threat: _Optional[_Union[Threat, _Mapping]] = ..., arm_name: _Optional[str] = ..., proved_inputs: _Optional[bool] = ..., reward_range: _Optional[_Union[RewardRange, _Mapping]] = ..., window_ms: _Optional[int] = ..., admission: _Optional[str] = ...) -> None: ...
