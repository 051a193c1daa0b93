"""Attacks that work on Flower's stock SecAgg+, carried out on it and on ours.

Each test first shows the weakness on the stock classes, then that ours does not have
it; docs/secure-sums.md lists them. If a Flower release mends one, its half goes red and
the claim is to be dropped from the document.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from benchmarks.stock_secagg import StockGrid, run_stock
from tests.support.secure_sums import (
    TENTH,
    Enrolment,
    asks,
    cohort_spec,
    forged,
    names,
    open_cohort,
)
from wallflower.protocol.errors import (
    AuthenticationError,
    RefusalError,
    WrongContextError,
)
from wallflower.protocol.secure_sum.context import unwrap
from wallflower.protocol.secure_sum.secagg_plus import mask_info, mask_value
from wallflower.protocol.secure_sum.session import SecureSum
from wallflower.protocol.secure_sum.threat import Threat, graph_size
from wallflower.protocol.wire import secure_sum_pb2 as wire

NODES = 6
VALUES = {node: node / 10 for node in range(1, NODES + 1)}


def stock(tap: Any = lambda stage, message: message, **sizes: Any) -> Any:
    grid = StockGrid(VALUES, tap)
    sizes = {"shares": 1.0, "threshold": 4} | sizes
    return grid, run_stock(grid, **sizes)


def test_the_stock_workflow_is_driven_as_it_should_be() -> None:
    _, mean = stock()
    assert mean == pytest.approx(sum(VALUES.values()) / NODES, abs=1e-3)


def test_masks_do_not_come_from_32_bits() -> None:
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    seed = bytes(range(32))
    # Only the XOR of eight words counts: 2^32 masks, whatever the key length.
    alike = seed[4:] + seed[:4]
    assert seed != alike
    stock_masks = [pseudo_rand_gen(s, 2**32, [(4,)])[0] for s in (seed, alike)]
    assert np.array_equal(stock_masks[0], stock_masks[1])

    info = mask_info(b"c" * 32, "pair")
    ours = [mask_value(s, info, 2**61 - 1) for s in (seed, alike)]
    assert ours[0] != ours[1]


def test_stock_masks_never_take_the_largest_value_and_ours_do() -> None:
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    stock_values = {
        int(pseudo_rand_gen(seed.to_bytes(4, "big"), 4, [(1,)])[0][0])
        for seed in range(2000)
    }
    info = mask_info(b"c" * 32, "self")
    ours = {mask_value(seed.to_bytes(32, "big"), info, 4) for seed in range(2000)}
    assert stock_values == {0, 1, 2}
    assert ours == {0, 1, 2, 3}


def test_one_message_does_not_get_both_kinds_of_share() -> None:
    both: dict[str, Any] = {}

    def ask_for_both(stage: str, message: Any) -> Any:
        configs = message.content.config_records["secaggplus_configs"]
        if stage == "unmask":
            configs["dead_nids"] = list(configs["active_nids"])
        return message

    grid = StockGrid(VALUES, ask_for_both)
    deliver = grid.deliver

    def keep(message: Any) -> Any:
        reply = deliver(message)
        both.update(reply.content.config_records["secaggplus_configs"])
        return reply

    grid.deliver = keep  # type: ignore[method-assign]
    # The workflow trips over what it was given; a lying server would not.
    with pytest.raises(ValueError, match="Duplicate share"):
        run_stock(grid, 1.0, 4)
    # Every node gave a share of the seed and a share of the key of every peer.
    listed = both["nids"]
    assert len(listed) == 2 * len(set(listed))

    cohort = open_cohort(cohort_spec("secagg-plus", names(8)), names(8))
    body = asks(cohort, "unmask").messages["node-00000"]
    greedy = forged(
        body, wire.UnmaskRequest, lambda m: m.dropped.extend(list(m.present))
    )
    with pytest.raises(WrongContextError, match="both kinds"):
        cohort.answer("node-00000", greedy)


def test_the_server_does_not_dictate_the_threshold() -> None:
    def lower(stage: str, message: Any) -> Any:
        configs = message.content.config_records["secaggplus_configs"]
        if stage == "setup":
            configs["threshold"] = 1
        return message

    states = stock(lower)[0].contexts
    assert {
        context.state.config_records["secaggplus_state"]["threshold"]
        for context in states.values()
    } == {1}

    # Ours has no such field: t follows from the threat, which a node has a say in.
    assert "threshold" not in {
        field.name
        for message in wire.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
    }
    assert graph_size(Threat(TENTH, TENTH), 60).threshold == 7


def test_public_keys_are_signed() -> None:
    swapped: list[int] = []

    def intercept(stage: str, message: Any) -> Any:
        configs = message.content.config_records["secaggplus_configs"]
        if stage == "share_keys":
            me = message.metadata.dst_node_id
            victim = next(n for n in VALUES if n != me)
            keys = list(configs[str(victim)])
            # A valid key of the server's making stands in for the victim's.
            configs[str(victim)] = [server_keys[0], server_keys[1]]
            swapped.append(me)
            assert keys != configs[str(victim)]
        return None if stage == "collect_masked_vectors" else message

    from flwr.supercore.primitives.asymmetric import (
        generate_key_pairs,
        public_key_to_bytes,
    )

    server_keys = [public_key_to_bytes(generate_key_pairs()[1]) for _ in range(2)]
    stock(intercept)
    assert len(swapped) == NODES  # every stock client sealed its shares for the server

    cohort = open_cohort(
        cohort_spec("secagg-plus", names(6)), names(6), enrolment=Enrolment()
    )
    body = asks(cohort, "share").messages["node-00000"]

    def swap(request: wire.ShareRequest) -> None:
        request.keys[0].key = b"\x09" * 32

    with pytest.raises(AuthenticationError):
        cohort.answer("node-00000", forged(body, wire.ShareRequest, swap))


@pytest.mark.parametrize("stage", ["setup", "share_keys"])
def test_a_dropout_in_the_first_two_stages_does_not_end_the_sum(stage: str) -> None:
    def lose_one(current: str, message: Any) -> Any:
        lost = current == stage and message.metadata.dst_node_id == 1
        return None if lost else message

    try:
        mean = stock(lose_one)[1]
    except (KeyError, IndexError, ValueError):
        mean = None
    assert mean is None  # the stock workflow halts

    ours = {"setup": "advertise", "share_keys": "share"}[stage]
    cohort = open_cohort(cohort_spec("secagg-plus", names(6), quorum=2), names(6))
    outcome = cohort.run(up=lambda s, p: not (s == ours and p == "node-00000"))
    assert isinstance(outcome, SecureSum)
    assert outcome.total == cohort.expected(outcome.survivors)


def test_any_number_of_shares_works() -> None:
    with pytest.raises((ValueError, IndexError, KeyError)):
        stock(shares=4, threshold=3)

    for nodes in (5, 6):  # 4 and 5 shares
        cohort = open_cohort(cohort_spec("secagg-plus", names(nodes)), names(nodes))
        assert isinstance(cohort.run(), SecureSum)


def test_the_modulus_need_not_be_a_power_of_two() -> None:
    from flwr.server.workflow.secure_aggregation import SecAggPlusWorkflow

    with pytest.raises(ValueError, match="power of 2"):
        SecAggPlusWorkflow(3, 2, quantization_range=10, modulus_range=1000)
    cohort = open_cohort(cohort_spec("secagg-plus", names(6), modulus=1000), names(6))
    outcome = cohort.run()
    assert isinstance(outcome, SecureSum)
    assert outcome.modulus == 1000


def test_user_counts_cannot_be_changed_on_the_way() -> None:
    """Stock num_examples travel in clear and unbound; our counts are inside seals."""
    seen: list[int] = []
    grid = StockGrid(VALUES)
    deliver = grid.deliver

    def read(message: Any) -> Any:
        reply = deliver(message)
        for name, record in reply.content.metric_records.items():
            if "num_examples" in name:
                seen.extend(int(value) for value in record.values())
        return reply

    grid.deliver = read  # type: ignore[method-assign]
    run_stock(grid, 1.0, 4)
    assert seen == [1] * NODES

    parties = dict.fromkeys(names(8), 5)
    cohort = open_cohort(cohort_spec("secagg-plus", parties), parties)
    cohort.parties = {**parties, "node-00001": 2}
    body = asks(cohort, "mask").messages["node-00000"]

    def inflate(request: wire.MaskRequest) -> None:
        roster = wire.Roster.FromString(request.sharers.roster)
        client: Any = cohort.clients["node-00000"]
        for index, position in enumerate(request.senders):
            if client.memory.request.neighbours[position] == "node-00001":
                request.users[index] = 5
        roster.users[list(roster.parties).index("node-00001")] = 5
        request.sharers.roster = roster.SerializeToString()
        request.sharers.users += 3

    with pytest.raises(WrongContextError, match="other users than the server says"):
        cohort.answer("node-00000", forged(body, wire.MaskRequest, inflate))


def test_a_node_can_insist_on_its_minimum() -> None:
    """Stock clients take any sample number; ours refuse (see test_secure_sum_rules)."""

    def tiny(stage: str, message: Any) -> Any:
        configs = message.content.config_records["secaggplus_configs"]
        if stage == "setup":
            configs["sample_num"] = 1
        return message if stage == "setup" else None

    grid = StockGrid(VALUES, tiny)
    run_stock(grid, 1.0, 4)
    assert len(grid.contexts) == NODES

    from wallflower.clients.secure_sum.limits import ClientLimits

    cohort = open_cohort(
        cohort_spec("secagg-plus", names(4)), names(4), limits=ClientLimits(5)
    )
    body = asks(cohort, "advertise").messages["node-00000"]
    with pytest.raises(RefusalError, match="cohort-too-small"):
        cohort.answer("node-00000", body)
    assert unwrap(body).receiver == "node-00000"
