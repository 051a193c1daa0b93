"""A client that contributes one number through Flower's SecAgg+ mod."""

from __future__ import annotations

import numpy as np
from flwr.app import Context
from flwr.client import Client, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import NDArrays, Scalar


class OneNumber(NumPyClient):
    """Gives 0 or 1, by the parity of the node's number, as a weight of one example."""

    def __init__(self, value: float) -> None:
        self._value = value

    def fit(
        self, parameters: NDArrays, config: dict[str, Scalar]
    ) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """Contribute the number."""
        return [np.array([self._value])], 1, {}


def client_fn(context: Context) -> Client:
    """Make the client of one node."""
    number = int(context.node_config.get("partition-id", context.node_id))
    return OneNumber(float(number % 2)).to_client()


app = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])
