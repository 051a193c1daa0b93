"""Who vouches for the people who arrive at a run."""

from __future__ import annotations

import time

from wallflower.protocol.errors import ConfigError
from wallflower.protocol.files.keyfiles import REVOKED, read_public
from wallflower.protocol.files.watched import RevokedSerials
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.visitors import ENROLLED, OPEN
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.transport.grpc.host import enrolment_key, revoked_serials
from wallflower.strategy.transport.visitors.handler import MOST_REMEMBERED


def visitor_trust(config: ExperimentConfig) -> Trust | None:
    """Return who vouches for an experiment's visitors; None where anybody may come."""
    assert config.visitors is not None
    if config.visitors.admission == OPEN:
        return None
    if config.visitors.admission == ENROLLED:
        key = enrolment_key(config)
        if key is None:
            raise ConfigError(
                "secure-sum.enrolment", 'is missing; admission = "enrolled" needs it'
            )
        return Trust(key, time.time, revoked_serials(config), MOST_REMEMBERED)
    path = config.visitors.inviter
    if path is None:
        raise ConfigError(
            "visitors.inviter", "is missing; `wallflower invite` makes the key"
        )
    revoked = RevokedSerials(path.with_name(REVOKED))
    return Trust(read_public(path), time.time, revoked, MOST_REMEMBERED)
