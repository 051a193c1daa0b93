"""An enrolment key for simulated nodes, which live in many processes.

In a simulation all is in one hand, so the key that admits nodes lies in the run
directory and every process derives the nodes' identities from it. That makes sums sized
for a malicious server run as they would in a deployment; it protects nobody.
"""

from __future__ import annotations

import os
from pathlib import Path

from wallflower.protocol.identity.enrolment import EnrolmentKey
from wallflower.protocol.identity.simulated import SEED_FILE
from wallflower.strategy.config import ExperimentConfig


def simulated_enrolment_key(config: ExperimentConfig, run_dir: Path) -> bytes | None:
    """Return the public key where the threat needs one; make the key for a new run."""
    if config.secure_sum.server != "malicious":
        return None
    path = run_dir / SEED_FILE
    if not path.exists():
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(file, "wb") as handle:
            handle.write(EnrolmentKey.generate().private_bytes())
    return EnrolmentKey.from_private_bytes(path.read_bytes()).public_key
