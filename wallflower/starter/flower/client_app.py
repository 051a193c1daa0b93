"""Knows what happened on a node; runs there, and nothing of it leaves in the clear."""

import hashlib

from flwr.app import Context
from flwr.clientapp import ClientApp

from wallflower import Pull, serve_nodes

# Nobody's sign-up rates: this file makes its visitors up.
RATES = {"current": 0.20, "shorter": 0.24, "with-photo": 0.36}


class SignUps:
    """What the visitors of one node did: 1, they signed up; 0, they did not.

    Flower's Context says which node it is (``node_config``) and has what this app kept
    there before (``state``), such as a model that it has trained.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    async def pull(self, pull: Pull) -> list[float]:
        """Show everybody the page and return what they did. Your own look-up goes here.

        Outcomes lie in [0, 1]. A digest decides: a visitor does the same every time.
        """
        return [
            float(_digest(pull.arm_name, pull.node_id, user) < RATES[pull.arm_name])
            for user in pull.users
        ]

    async def close(self) -> None:
        """Let go of files and connections."""


def _digest(*words: str) -> float:
    digest = hashlib.sha256(" ".join(words).encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


app = serve_nodes(ClientApp(), rewards=SignUps)
