"""What a node insists on before it sends anything through a shuffler."""

from __future__ import annotations

import pytest

from tests.support.client_sessions import client_session, restore_session
from tests.support.secure_sums import names
from tests.support.shuffled_sums import (
    FINGERPRINT,
    KEY,
    ShuffledCohort,
    shuffled_spec,
)
from wallflower.clients.consent import ClientPolicy
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.protocol.errors import (
    InputError,
    ProtocolError,
    RefusalError,
    ReplayedMessageError,
    TermsError,
)
from wallflower.protocol.secure_sum.backends import RELEASE, SUBMIT
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.session import Ask, ClientSession, Contribution
from wallflower.protocol.secure_sum.shuffle.plan import ShufflePlan, unnamed_info
from wallflower.protocol.secure_sum.shuffle.seals import HYBRID, OpeningKey
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.shuffle_pb2 import SubmitAnswer, SubmitRequest
from wallflower.strategy.secure_sum import ServerKeyring, server_session

PARTY = "node-00001"
LIMITS = ClientLimits(shufflers=(FINGERPRINT,))


def first_message(spec: CohortSpec, shuffler: bytes = KEY.public) -> bytes:
    keyring = ServerKeyring(spec.run_id)
    keyring.shuffler = shuffler
    step = server_session(spec, names(spec.cohort_size), keyring=keyring).start()
    assert isinstance(step, Ask)
    return step.messages[PARTY]


def node(spec: CohortSpec, limits: ClientLimits = LIMITS) -> ClientSession:
    return client_session(spec, PARTY, None, None, limits, ClientKeyring(spec.run_id))


def test_a_shuffler_that_is_not_pinned_is_refused_before_anyone_is_asked() -> None:
    spec = shuffled_spec()
    other = OpeningKey.generate(HYBRID).public
    with pytest.raises(RefusalError, match="not among the 1 agreed to"):
        node(spec).inspect(first_message(spec, other))


def test_without_any_pinned_shuffler_terms_are_refused() -> None:
    policy = ClientPolicy(mechanisms=("shuffle-dp",), smallest_cohort=2)
    with pytest.raises(TermsError, match="no shuffler is agreed to"):
        policy.check(shuffled_spec(20, floor=16))


@pytest.mark.parametrize("name", ["", "abc", "g" * 64, "A" * 64])
def test_a_pin_that_is_none_is_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match="shufflers"):
        ClientPolicy(shufflers=(name,))


@pytest.mark.parametrize("mechanism", ["dist-rdp", "dist-cdp", "local-dp"])
def test_terms_of_another_mechanism_through_a_shuffler_are_refused(
    mechanism: str,
) -> None:
    spec = shuffled_spec(20, floor=16)
    spec.mechanism = mechanism
    policy = ClientPolicy(shufflers=(FINGERPRINT,), smallest_cohort=2)
    with pytest.raises(TermsError, match="shuffle-dp or dist-dp with shuffle"):
        policy.check(spec)


def test_a_modulus_that_is_no_power_of_two_is_refused() -> None:
    spec = shuffled_spec()
    message = first_message(spec)
    odd = CohortSpec.FromString(spec.SerializeToString())
    odd.modulus += 1
    with pytest.raises(ProtocolError):
        node(odd).inspect(message)


def test_the_same_request_has_the_same_answer_and_another_one_none() -> None:
    spec = shuffled_spec()
    session, message = node(spec), first_message(spec)
    answer = session.inspect(message).answer(Contribution(3, 1)).body
    assert session.inspect(message).answer(Contribution(4, 1)).body == answer
    with pytest.raises(ReplayedMessageError):
        session.inspect(first_message(spec)).answer(Contribution(3, 1))


def test_a_session_in_another_process_gives_the_answer_it_gave() -> None:
    spec = shuffled_spec()
    session, message = node(spec), first_message(spec)
    answer = session.inspect(message).answer(Contribution(3, 1)).body
    keyring = ClientKeyring(spec.run_id)
    again = restore_session(session.snapshot(), None, None, LIMITS, keyring)
    assert again.inspect(message).answer().body == answer


def test_the_shufflers_stage_is_no_nodes() -> None:
    spec = shuffled_spec()
    inside = unwrap(first_message(spec))
    message = wrap(RELEASE, inside.context, "", PARTY, inside.payload)
    with pytest.raises(ProtocolError, match="no stage"):
        node(spec).inspect(message).answer()


def test_a_sealing_key_that_is_none_is_refused() -> None:
    spec = shuffled_spec()
    inside = unwrap(first_message(spec))
    request = SubmitRequest.FromString(inside.payload)
    request.sealing_key = bytes(32)
    payload = request.SerializeToString()
    message = wrap(SUBMIT, inside.context, "", PARTY, payload)
    with pytest.raises(ProtocolError):
        node(spec).inspect(message)


def test_all_batches_of_a_cohort_have_one_length_whatever_is_in_them() -> None:
    spec = shuffled_spec()
    message, lengths = first_message(spec), set()
    for value in (0, 1, spec.modulus - 1):
        lengths.add(
            len(node(spec).inspect(message).answer(Contribution(value, 1)).body)
        )
    assert len(lengths) == 1


def test_every_message_is_sealed_on_its_own() -> None:
    spec = shuffled_spec()
    message = first_message(spec)
    answer = unwrap(ShuffledCohort(spec).node_answer(PARTY, message, 3))
    submitted = SubmitAnswer.FromString(answer.payload)
    key = SubmitRequest.FromString(unwrap(message).payload).sealing_key
    place = unnamed_info(answer.context, key)
    messages = KEY.open(submitted.batch, place)
    plan = ShufflePlan.of(spec, 5)
    singles = {
        messages[start : start + 32]
        for start in range(0, len(messages), plan.message_bytes)
    }
    assert len(singles) == plan.messages
