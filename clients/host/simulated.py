"""Whether this process simulates nodes; nothing a server says has a part in it.

A simulated node takes policy, rewards and noise seed from the experiment's file, that
is from the server. That is right where all nodes are in one hand and wrong on anybody's
own machine, so it is decided by what runs the ClientApp: an actor of Flower's
simulation, or a grid in this very process. A SuperNode runs it in a process of its own,
and whatever its node config, run config and messages say, that is no simulation.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Iterator

_here = contextvars.ContextVar("wallflower-simulated", default=False)


@contextlib.contextmanager
def simulated_here() -> Iterator[None]:
    """Say that the nodes served inside are simulated by this process."""
    token = _here.set(True)
    try:
        yield
    finally:
        _here.reset(token)


def in_simulation() -> bool:
    """Return whether the ClientApp is run by a simulation."""
    return _here.get() or _in_an_actor()


def _in_an_actor() -> bool:
    # Flower's simulation has imported Ray before it calls; nobody else needs it.
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return False
    return ray.get_runtime_context().get_actor_id() is not None
