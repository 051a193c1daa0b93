"""A RewardSource service as a hospital's or device's own application would write it.

It shows an option to each patient and reports the outcome when it is known, which may
take hours; each outcome is sent on its own, so early ones never wait for late ones.

    python examples/reward_server.py --port 7070 --delay 5

and in the experiment's (or the node's) file::

    [rewards]
    source = "grpc"
    address = "127.0.0.1:7070"
    window-s = 10      # longer than the delay; the outcome is what is known by then
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import AsyncIterator

import grpc

from wallflower.protocol.wire import rewards_pb2, rewards_pb2_grpc


class Outcomes(rewards_pb2_grpc.RewardSourceServicer):
    """Recovers a patient within a day (1) or not (0), after a random delay."""

    def __init__(self, delay_s: float, no_show: float) -> None:
        self._delay_s = delay_s
        self._no_show = no_show
        self._chances = random.SystemRandom()

    async def Pull(  # noqa: N802 (the name is the schema's)
        self,
        request: rewards_pb2.PullRequest,
        context: grpc.aio.ServicerContext[rewards_pb2.PullRequest, rewards_pb2.Reward],
    ) -> AsyncIterator[rewards_pb2.Reward]:
        """Treat every user with the arm; send each outcome when it is known."""
        waiting = [
            asyncio.ensure_future(self._treat(request.arm_name, user))
            for user in request.users
        ]
        try:
            for outcome in asyncio.as_completed(waiting):
                yield await outcome
        finally:  # the node gave up, or the call ended
            for treatment in waiting:
                treatment.cancel()

    async def _treat(self, arm_name: str, user: str) -> rewards_pb2.Reward:
        await asyncio.sleep(self._delay_s * self._chances.random())
        if self._chances.random() < self._no_show:
            return rewards_pb2.Reward(user=user, failure="no-show")
        # A real application looks at the patient; this one knows that the chance of
        # recovery depends on how long the option's name is.
        chance = min(0.9, len(arm_name) / 12)
        return rewards_pb2.Reward(
            user=user, value=float(self._chances.random() < chance)
        )


async def serve(port: int, delay_s: float, no_show: float) -> None:
    """Serve on loopback until interrupted."""
    server = grpc.aio.server()
    rewards_pb2_grpc.add_RewardSourceServicer_to_server(  # type: ignore[no-untyped-call]
        Outcomes(delay_s, no_show), server
    )
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print(f"listening on 127.0.0.1:{bound}", flush=True)
    try:
        await server.wait_for_termination()
    finally:
        await server.stop(1)


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--delay", type=float, default=1.0, help="longest, in seconds")
    parser.add_argument("--no-show", type=float, default=0.02, help="chance of none")
    options = parser.parse_args()
    try:
        asyncio.run(serve(options.port, options.delay, options.no_show))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
