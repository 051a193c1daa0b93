"""The shuffler's process: whose messages it counts."""

from __future__ import annotations

from pathlib import Path

from tests.support.secure_sums import Enrolment
from tests.support.shuffled_sums import ShuffledCohort, shuffled_spec, started
from tests.wallflower.shuffler.test_killed import stopped
from tests.wallflower.shuffler.test_service import asked
from wallflower.protocol.files.keyfiles import ENROLMENT_PUBLIC, REVOKED, public_key_pem
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.wire.shuffle_pb2 import ReleaseAnswer


def enrolled(party: str, enrolment: Enrolment) -> int:
    """Enrol a node for the process's own clock; give the serial."""
    bare = NodeIdentity.generate(party)
    held = enrolment.key.issue(party, bare.public_key, not_after=2**40, capacity=9)
    enrolment.identities[party] = bare.enrolled(held)
    return held.serial


async def test_nodes_revoked_while_it_runs_count_for_nothing(tmp_path: Path) -> None:
    # Whoever stole a node's key could else fill the cohort around one honest node.
    enrolment, keys = Enrolment(), tmp_path / "keys"
    keys.mkdir()
    public = keys / ENROLMENT_PUBLIC
    public.write_bytes(public_key_pem(enrolment.key.public_key))
    home = tmp_path / "home"
    process, place = await started(home, words=["--enrolment", str(public)])
    try:
        spec = shuffled_spec(malicious=True)
        cohort = ShuffledCohort(spec, enrolment, place=place)
        serials = [enrolled(party, enrolment) for party in cohort.parties]
        _, request = cohort.submitted()
        assert isinstance(request, bytes)
        (keys / REVOKED).write_text("\n".join(map(str, serials[1:])))
        answer = await asked(place, request)
    finally:
        await stopped(process)
    assert "1 nodes with 1 users" in ReleaseAnswer.FromString(answer.body).refusal
