"""Flower's stock SecAgg+, its own classes, driven in process without a network.

The workflow runs unchanged; its grid hands each message to `secaggplus_mod` of the
addressed node, as the runtime would, without serializing it. Used by the benchmark and
by the tests that try the attacks of docs/secure-sums.md on both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.app.message_type import MessageType
from flwr.client.mod.secure_aggregation.secaggplus_mod import secaggplus_mod
from flwr.common import (
    Code,
    FitIns,
    FitRes,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.common.serde import message_to_proto
from flwr.compat.common import recorddict_compat as compat
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.server.workflow.secure_aggregation import SecAggPlusWorkflow
from flwr.supercore.task_identity import TaskIdentity

Tap = Callable[[str, Any], Any]  # stage, message → the message delivered, or None


@dataclass
class _Proxy:
    node_id: int


@dataclass
class _Strategy:
    """Samples everybody and keeps what the workflow hands over."""

    nodes: Iterable[int]
    aggregate: Any = None

    def configure_fit(self, _round: int, parameters: Any, _manager: Any) -> Any:
        return [(_Proxy(node), FitIns(parameters, {})) for node in self.nodes]

    def aggregate_fit(self, _round: int, results: Any, _failures: Any) -> Any:
        self.aggregate = parameters_to_ndarrays(results[0][1].parameters)
        return results[0][1].parameters, {}


class _Manager:
    def num_available(self) -> int:
        return 0


@dataclass
class StockGrid:
    """Delivers messages to the stock client mod; `tap` may drop or change them."""

    values: dict[int, float]
    tap: Tap = lambda stage, message: message
    count_bytes: bool = False
    down_bytes: int = 0
    up_bytes: int = 0
    contexts: dict[int, Any] = field(default_factory=dict)

    def send_and_receive(
        self, messages: Iterable[Any], *, timeout: float | None = None
    ) -> list[Any]:
        """Answer every message that the tap lets through."""
        replies = []
        for message in messages:
            stage = message.content.config_records["secaggplus_configs"]["stage"]
            seen = self.tap(stage, message)
            if seen is not None:
                replies.append(self.deliver(seen))
        return replies

    def deliver(self, message: Any) -> Any:
        """Run the client mod of the addressed node."""
        node = message.metadata.dst_node_id
        if self.count_bytes:
            self.down_bytes += message_to_proto(message).ByteSize()
        if node not in self.contexts:
            self.contexts[node] = Context(
                run_id=1,
                node_id=node,
                node_config={},
                state=RecordDict(),
                run_config={},
                series_id=0,
            )
        copy = Message(
            content=RecordDict(
                {
                    name: ConfigRecord(dict(record))
                    if isinstance(record, ConfigRecord)
                    else record
                    for name, record in message.content.items()
                }
            ),
            dst_node_id=node,
            message_type=MessageType.TRAIN,
            group_id=message.metadata.group_id,
        )
        reply = secaggplus_mod(copy, self.contexts[node], self._fit)
        if self.count_bytes:
            self.up_bytes += message_to_proto(reply).ByteSize()
        return reply

    def _fit(self, message: Any, _context: Any) -> Any:
        node = message.metadata.dst_node_id
        value = np.array([self.values[node]], dtype=np.float64)
        result = FitRes(
            Status(Code.OK, ""),
            ndarrays_to_parameters([value]),
            num_examples=1,
            metrics={},
        )
        return Message(compat.fitres_to_recorddict(result, False), reply_to=message)


def run_stock(
    grid: StockGrid, shares: int | float, threshold: int | float
) -> float | None:
    """Run one aggregation; gives the mean it arrived at, or None if it halted."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    # Messages take their sender from the process; here all parties share one.
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    strategy = _Strategy(list(grid.values))
    context = LegacyContext(
        Context(
            run_id=1,
            node_id=0,
            node_config={},
            state=RecordDict(),
            run_config={},
            series_id=0,
        ),
        strategy=cast(Any, strategy),
        client_manager=cast(Any, _Manager()),
    )
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord(
        {Key.CURRENT_ROUND: 1}
    )
    start = ndarrays_to_parameters([np.zeros(1)])
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(
        start, True
    )
    workflow = SecAggPlusWorkflow(
        num_shares=shares, reconstruction_threshold=threshold, max_weight=1.0
    )
    workflow(cast(Any, grid), context)
    if strategy.aggregate is None:
        return None
    return float(strategy.aggregate[0][0])
