"""Make the machines' randomness a function of a seed, so that states can be hashed."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from wallflower.protocol.secure_sum.sealed import group


@contextmanager
def seeded(*seed: object) -> Iterator[None]:
    """Draw everything inside from `seed` alone."""
    dice = random.Random(repr(seed))

    def generate() -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(dice.randbytes(32))

    with (
        mock.patch.object(secrets, "token_bytes", dice.randbytes),
        mock.patch.object(secrets, "randbelow", dice.randrange),
        mock.patch.object(secrets, "randbits", dice.getrandbits),
        mock.patch.object(group, "urandom", dice.randbytes),
        mock.patch.object(X25519PrivateKey, "generate", staticmethod(generate)),
    ):
        yield
