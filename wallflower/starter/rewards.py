"""What happened when this visitor saw this page: 1, they signed up; 0, they did not.

Wallflower calls `outcome` once for everybody it asks, on the machine that hosts them.
Put your own look-up here. What it returns lies in [0, 1]; where it returns no number
or raises an exception, `rewards.if-unknown` counts for that visitor (0 by default).
"""

import hashlib

# Nobody's sign-up rates: this file makes its visitors up.
RATES = {"current": 0.20, "shorter": 0.24, "with-photo": 0.36}


async def outcome(arm: str, user: str) -> float:
    """Decide by a digest, so that the same visitor does the same every time.

    A coroutine must not block; a plain ``def`` may, it gets a thread of its own.
    """
    digest = hashlib.sha256(f"{arm} {user}".encode()).digest()
    return float(int.from_bytes(digest[:4], "big") < RATES[arm] * 2**32)
