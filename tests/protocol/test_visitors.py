"""What people who arrive may be sent, and what is no invitation."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from tests.protocol.test_cohort import spec
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity
from wallflower.protocol.visitors import Invitation
from wallflower.protocol.wire.cohort_pb2 import Threat


def lying() -> Threat:
    threat = Threat(malicious_server=True)
    threat.corrupt.CopyFrom(spec().threat.corrupt)
    return threat


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"admission": "everybody"}, "admission"),
        ({"admission": "open", "backend": "secagg-plus"}, "backend"),
        ({"admission": "invited", "cohort_size": 2**32}, "cohort_size"),
        ({"admission": "open", "threat": lying()}, "it could invent people"),
    ],
)
def test_seats_that_no_cohort_can_have_are_refused(
    changes: dict[str, object], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        cohort_mechanism(spec(**changes))


@pytest.mark.parametrize("admission", ["invited", "enrolled"])
def test_where_the_server_may_lie_people_come_whom_somebody_vouches_for(
    admission: str,
) -> None:
    stated = spec(admission=admission, threat=lying())
    assert cohort_mechanism(stated).cohort_size == stated.cohort_size


INVITATION = Invitation.issue(EnrolmentKey.generate(), not_after=2**40)
TEXT = INVITATION.text()


def test_an_invitation_is_read_as_it_was_written() -> None:
    read = Invitation.read(TEXT).identity
    assert read.private_bytes() == INVITATION.identity.private_bytes()
    assert read.certificate == INVITATION.identity.certificate
    seed = base64.urlsafe_b64encode(read.private_bytes()).decode()
    assert seed[:20] not in repr(INVITATION)


def with_another_key(body: bytes) -> bytes:
    return NodeIdentity.generate("another").private_bytes() + body[32:]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda body: body[:32], "cut short"),
        (lambda body: body[:60], "certificate"),
        (with_another_key, "for another key"),
    ],
)
def test_an_invitation_that_was_changed_is_no_invitation(
    change: Callable[[bytes], bytes], why: str
) -> None:
    body = base64.urlsafe_b64decode(TEXT + "=" * (-len(TEXT) % 4))
    text = base64.urlsafe_b64encode(change(body)).decode().rstrip("=")
    with pytest.raises(MalformedMessageError, match=why):
        Invitation.read(text)


@pytest.mark.parametrize("text", ["a", "ä" * 80, "+" * 80, TEXT + "!"])
def test_what_is_not_such_a_text_is_no_invitation(text: str) -> None:
    with pytest.raises(MalformedMessageError, match="garbled"):
        Invitation.read(text)
