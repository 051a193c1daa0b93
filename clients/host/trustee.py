"""A trustee: a node that stays connected and holds a share of the key.

Its shares outlive the process, encrypted in its home: a round of people who arrive may
take weeks. It opens a sum only on its own policy's terms.
"""

from __future__ import annotations

from wallflower.clients.host import invitations
from wallflower.clients.host.home import NodeHome, node_lock
from wallflower.clients.node.sessions import SessionStore
from wallflower.clients.node.spends import OneTimeAnswer
from wallflower.clients.transport.grpc_client import (
    ConnectionSettings,
    Invitation,
    connect_node,
)

# Rounds of people who arrive are long, and a share that is gone loses all of a round.
_KEPT_S = 400 * 86_400.0


async def keep_trustee(
    home: NodeHome, invitation: Invitation, *, patience_s: float
) -> str:
    """Stay connected until the run is over; give why it is.

    The server may be away for `patience_s`; then UnavailableError is raised.
    """
    run_id = invitation.run_id
    with node_lock(home.path), home.ledger() as ledger:
        await ledger.record_answer(OneTimeAnswer.connection(home.name, run_id))
        store = SessionStore(home.path, oldest_s=_KEPT_S)
        try:
            node = home.node(ledger, store)
            node.only_run = run_id
            over = await connect_node(
                invitation,
                home.identity,
                node,
                settings=ConnectionSettings(patience_s=patience_s),
            )
            invitations.drop(home.path, run_id)
            return over
        finally:
            store.close()
