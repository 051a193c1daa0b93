"""Small worlds: nodes, cohorts, and a key that they share where sums are sealed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tests.support.machines.dealing_lies import DealingLiar
from tests.support.machines.faults import FaultWorld
from tests.support.machines.lies import LieWorld
from tests.support.machines.nodes import (
    RUN,
    Actor,
    Laboratory,
    NodeState,
    stage_request,
)
from tests.support.machines.plus_lies import PlusLiar
from tests.support.machines.sealed_lies import SealedLiar
from tests.support.machines.servers import Cohort
from tests.support.secure_sums import cohort_spec
from wallflower.protocol.secure_sum.backends import SEALED, SECAGG_PLUS
from wallflower.protocol.secure_sum.sealed.committee import dealing_spec
from wallflower.protocol.secure_sum.sealed.sizes import dealing_sizes
from wallflower.protocol.secure_sum.session import Ask, KeyReady
from wallflower.protocol.secure_sum.threat import Threat, least_contributors
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.sealed_pb2 import DealingState
from wallflower.strategy.secure_sum import (
    ServerKeyring,
    backend_modulus,
    server_session,
)
from wallflower.strategy.secure_sum.keyring import SharedKey

NAMES = ("n1", "n2", "n3", "n4")
_TENTH = Fraction(1, 10)


@dataclass(frozen=True, slots=True)
class SessionParams:
    """Nodes of one laboratory under one threat."""

    laboratory: Laboratory
    threat: Threat
    actors: Mapping[str, Actor]

    @classmethod
    def of(
        cls,
        laboratory: Laboratory,
        nodes: int,
        *,
        hosted: bool = False,
        corrupt: Fraction = Fraction(0),
    ) -> SessionParams:
        """Make nodes; with an enrolment key they withstand a lying server."""
        malicious = laboratory.trust is not None
        actors = {
            name: Actor(name, 1 << place, laboratory, hosted)
            for place, name in enumerate(NAMES[:nodes])
        }
        return cls(laboratory, Threat(corrupt, _TENTH, malicious), actors)

    @property
    def parties(self) -> dict[str, int]:
        return dict.fromkeys(self.actors, 1)

    @property
    def users(self) -> dict[str, str]:
        return {name: actor.user for name, actor in self.actors.items()}

    def first_states(self) -> dict[str, NodeState]:
        """Return the states of nodes that were never asked anything."""
        return {name: actor.first_state() for name, actor in self.actors.items()}

    def spec(self, backend: str, cohort_id: str, quorum: int) -> CohortSpec:
        """Describe a cohort of all nodes."""
        spec = cohort_spec(
            SEALED,
            self.parties,
            threat=self.threat,
            cohort_id=cohort_id,
            quorum=quorum,
            run_id=RUN,
        )
        spec.backend = backend
        spec.modulus = backend_modulus(backend, spec.modulus)
        return spec

    def dealing(self, members: Sequence[str]) -> CohortSpec:
        """Describe the dealing of a key among some nodes."""
        return dealing_spec(RUN, "deal", self.threat, dict.fromkeys(members, 1))

    def deal(self, members: Sequence[str]) -> tuple[DealingState, dict[str, NodeState]]:
        """Deal a key without faults; give it and the nodes after it."""
        spec, states = self.dealing(members), self.first_states()
        keyring = ServerKeyring(RUN)
        session = server_session(
            spec,
            dict.fromkeys(members, 1),
            trust=self.laboratory.trust,
            keyring=keyring,
        )
        step = session.start()
        while isinstance(step, Ask):
            for party, message in step.messages.items():
                body = stage_request(spec, (), message)
                reply = self.actors[party].ask(states[party], body)
                states[party] = reply.state
                session.receive(party, reply.answer)
            step = session.advance()
        assert isinstance(step, KeyReady), step
        assert keyring.dealt is not None
        return keyring.dealt.state, states


def faulty_dealing(setting: SessionParams, *, crashes: int) -> FaultWorld:
    """A key is dealt over a bad network."""
    sizes = dealing_sizes(setting.threat, len(setting.actors))
    least = max(sizes.threshold, sizes.accepted)
    cohort = Cohort(
        setting.dealing(tuple(setting.actors)),
        setting.parties,
        setting.laboratory.trust,
    )
    return FaultWorld(
        setting.actors,
        setting.first_states(),
        (cohort,),
        (lambda unhurt: len(unhurt) >= least,),
        crashes,
    )


def faulty_sums(
    setting: SessionParams,
    backend: str,
    *,
    cohorts: int,
    crashes: int,
    quorum: int = 2,
    members: Sequence[str] = NAMES[:3],
) -> FaultWorld:
    """Sums over a bad network; sealed ones under a key of `members`."""
    dealing, states = None, setting.first_states()
    nodes = len(setting.actors)
    needed = max(least_contributors(setting.threat, nodes), quorum)
    if backend == SECAGG_PLUS:  # whoever is left after the first loss is needed
        needed = max(needed, nodes - 1)
    openers, threshold = frozenset[str](), 0
    if backend == SEALED:
        dealing, states = setting.deal(members)
        openers = frozenset(members)
        threshold = dealing_sizes(setting.threat, len(members)).threshold

    def enough(unhurt: frozenset[str]) -> bool:
        return len(unhurt) >= needed and len(unhurt & openers) >= threshold

    made = tuple(
        Cohort(
            setting.spec(backend, f"cohort-{number}", quorum),
            setting.parties,
            setting.laboratory.trust,
            dealing,
        )
        for number in range(cohorts)
    )
    if cohorts > 1:  # the same people are asked twice, and may all be in the other sum
        return FaultWorld(
            setting.actors, states, made, (lambda _: False,) * cohorts, crashes
        )
    return FaultWorld(setting.actors, states, made, (enough,), crashes)


Described = Sequence[tuple[str, int]]  # id and quorum of a cohort
Rosters = Sequence[tuple[str, ...]]


def lied_dealing(
    setting: SessionParams, rosters: Rosters, *, crashes: int = 0, again: int = 0
) -> LieWorld:
    """A lying server has a key dealt."""
    names = tuple(setting.actors)
    liar = DealingLiar(
        names, (setting.dealing(names),), rosters, setting.laboratory.trust
    )
    states = setting.first_states()
    return LieWorld(setting.actors, states, liar, ("deal",), crashes, again)


def lied_sealed(
    setting: SessionParams,
    described: Described,
    rosters: Rosters,
    *,
    crashes: int = 0,
    rows: bool = True,
) -> LieWorld:
    """A lying server has sums sealed under a key that three nodes hold."""
    dealing, states = setting.deal(NAMES[:3])
    specs = [setting.spec(SEALED, *one) for one in described]
    liar = SealedLiar(SharedKey(dealing), setting.users, specs, rosters)
    cohorts = tuple(dict.fromkeys(cohort for cohort, _ in described))
    return LieWorld(setting.actors, states, liar, cohorts, crashes, rows=rows)


def lied_plus(
    setting: SessionParams,
    described: Described,
    rosters: Rosters,
    *,
    garbled: bool = False,
    crashes: int = 0,
    again: int = 0,
) -> LieWorld:
    """A lying server runs secagg-plus."""
    specs = [setting.spec(SECAGG_PLUS, *one) for one in described]
    liar = PlusLiar(setting.users, specs, rosters, garbled)
    cohorts = tuple(dict.fromkeys(cohort for cohort, _ in described))
    states = setting.first_states()
    return LieWorld(setting.actors, states, liar, cohorts, crashes, again)
