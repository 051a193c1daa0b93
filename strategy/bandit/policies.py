"""Build a policy by name, or restore one from its written state."""

from __future__ import annotations

from collections.abc import Callable

from wallflower.protocol.errors import JournalError
from wallflower.strategy.bandit.elimination import Elimination
from wallflower.strategy.bandit.index import IndexPolicy
from wallflower.strategy.bandit.policy import Policy
from wallflower.strategy.bandit.recorded import State
from wallflower.strategy.bandit.spec import ELIMINATION, INDEX_POLICIES, PolicySpec

# name → what begins an experiment from a spec, or goes on from a written state
_POLICIES: dict[str, Callable[[PolicySpec, State | None], Policy]] = {
    ELIMINATION: Elimination,
    **dict.fromkeys(INDEX_POLICIES, IndexPolicy),
}


def build_policy(spec: PolicySpec) -> Policy:
    """Start an experiment; the spec has checked the name already."""
    return _POLICIES[spec.policy](spec, None)


def policy_from_state(state: State) -> Policy:
    """Restore a policy exactly; refuses a state it cannot read."""
    try:
        if state["schema_version"] != 1:
            raise JournalError(
                f"policy state has schema {state['schema_version']}; this version "
                "reads 1: use the Wallflower that wrote it"
            )
        spec = PolicySpec.from_json(state["spec"])
        return _POLICIES[spec.policy](spec, state)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise JournalError(
            f"policy state is damaged ({type(error).__name__}: {error}); "
            "restore the journal from a copy"
        ) from None
