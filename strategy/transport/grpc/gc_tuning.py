"""Keep the garbage collector from walking over thousands of idle streams.

Python looks at every living object now and then. Each stream is some dozens of them, so
that with many nodes every cohort paid for walking over all that wait. What has settled
is collected once and set aside (`gc.freeze`); it is still freed as soon as nobody holds
it, and cycles among it when the number of streams changes or ten minutes have passed.

What a cohort makes is young, and all of it lives until the cohort's end. By default
Python looks through the young every 700 objects, which is every 40 users: with 8,000
nodes that and walking over the cohort so far took a sixth of the server's time. It now
comes by once there are twenty new objects a stream, about once a cohort whatever n.
"""

from __future__ import annotations

import gc

_FEWEST_STREAMS = 500
_CHANGE = 0.25
_AGAIN_AFTER_S = 600.0
_YOUNG_PER_STREAM = 20


class TunedGc:
    """What was set aside, and when."""

    def __init__(self) -> None:
        self._streams = 0
        self._at = 0.0
        self._thresholds = gc.get_threshold()

    def tune(self, streams: int, now: float) -> None:
        """Set aside what has settled; called every few seconds."""
        if max(streams, self._streams) < _FEWEST_STREAMS:
            return
        changed = abs(streams - self._streams) > _CHANGE * self._streams
        if changed or now - self._at > _AGAIN_AFTER_S:
            self.close()
            gc.collect()
            if streams >= _FEWEST_STREAMS:
                gc.freeze()
                young, *older = self._thresholds
                gc.set_threshold(max(young, _YOUNG_PER_STREAM * streams), *older)
                self._streams, self._at = streams, now

    def close(self) -> None:
        """Return everything to the collector."""
        if self._streams:
            gc.unfreeze()
            gc.set_threshold(*self._thresholds)
            self._streams = 0
