"""Every secret of a secure sum is new each time, and no two nodes share one.

Equal ones by chance: less than once in 2¹⁰⁰ runs.
"""

from __future__ import annotations

from tests.support.secure_sums import Cohort, asks, cohort_spec, names, open_cohort
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.secagg_plus import SecaggPlusClient
from wallflower.protocol.secure_sum.context import unwrap
from wallflower.protocol.wire.sealed_pb2 import SealAnswer
from wallflower.protocol.wire.secure_sum_pb2 import (
    MaskAnswer,
    PartyKey,
    ShareAnswer,
)

PARTIES = names(4)
LARGE = 2**61


def opened(backend: str, keyrings: dict[str, ClientKeyring] | None = None) -> Cohort:
    """The same cohort with the same values, as if it were run a second time."""
    spec = cohort_spec(backend, PARTIES, modulus=LARGE)
    return open_cohort(spec, PARTIES, dict.fromkeys(PARTIES, 5), keyrings=keyrings)


def payloads(cohort: Cohort, stage: str) -> list[bytes]:
    messages = asks(cohort, stage).messages
    return [
        unwrap(cohort.answer(party, body)).payload for party, body in messages.items()
    ]


def test_a_sealed_value_has_another_ciphertext_each_time() -> None:
    answers = [
        SealAnswer.FromString(answer)
        for _ in range(2)
        for answer in payloads(opened("sealed"), "seal")
    ]
    for part in ("one", "two", "proof"):
        assert len({getattr(answer, part) for answer in answers}) == len(answers)


def test_no_two_nodes_and_no_two_runs_have_the_same_key() -> None:
    keys = [
        PartyKey.FromString(answer)
        for _ in range(2)
        for answer in payloads(opened("secagg-plus"), "advertise")
    ]
    assert len({key.key for key in keys}) == len(keys)


def test_shares_for_neighbours_are_sealed_under_a_salt_of_their_own() -> None:
    answers = [
        ShareAnswer.FromString(answer)
        for _ in range(2)
        for answer in payloads(opened("secagg-plus"), "share")
    ]
    assert len({answer.salt for answer in answers}) == len(answers)
    assert bytes(16) not in {answer.salt for answer in answers}


def test_every_node_masks_with_a_seed_and_a_key_of_its_own() -> None:
    seeds, keys = set(), set()
    for _ in range(2):
        cohort = opened("secagg-plus")
        payloads(cohort, "share")
        for client in cohort.clients.values():
            assert isinstance(client, SecaggPlusClient)
            assert client.memory.mask_key is not None
            seeds.add(client.memory.self_seed)
            keys.add(client.memory.mask_key.public)
    assert len(seeds) == len(keys) == 2 * len(PARTIES)
    assert bytes(32) not in seeds


def test_masked_values_of_the_same_value_have_nothing_in_common() -> None:
    masked = [
        MaskAnswer.FromString(answer).masked
        for _ in range(2)
        for answer in payloads(opened("secagg-plus"), "mask")
    ]
    assert len(set(masked)) == len(masked)
    assert 5 not in masked
