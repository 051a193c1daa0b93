"""The ledger of the nodes that an engine hosts: beside its journal, in step with it.

It is made before anybody is invited and grows before anything is answered, so one that
is gone, emptied or older than the journal was meddled with or lost. Going on with a new
one would let people be asked beyond their budget without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.rollback_counter import Counter
from wallflower.protocol.errors import RefusalError, UnavailableError
from wallflower.protocol.messages.port import NodeId, NodeTransport
from wallflower.results.hosted_ledger import ledger_path


def hosted_ledger(run_dir: Path, shared: Path | None = None) -> Ledger:
    """Open the ledger of a run's hosted nodes; see `check_hosted_ledger` first.

    `shared` is the file of ``nodes.ledger``, which several experiments write to.
    """
    if shared is not None:
        return Ledger(shared, Counter(shared.with_suffix(".counter")))
    # Not flushed: what a power cut may lose of the counter, the journal has.
    counter = Counter(run_dir / "ledger.counter", durable=False)
    return Ledger(ledger_path(run_dir), counter)


class LedgeredTransport:
    """A port to hosted nodes that are there only while their ledger can be written.

    Who is there is asked before anybody is drawn: nobody is invited whose answer could
    not be sent.
    """

    def __init__(self, port: NodeTransport, ledger: Ledger) -> None:
        self._port = port
        self._ledger = ledger
        self.ask = port.ask  # only who is there is a matter of the ledger's

    async def nodes(self) -> Sequence[NodeId]:
        """Name the nodes; UnavailableError where the ledger is locked or full."""
        try:
            await self._ledger.ready()
        except RefusalError as refusal:
            raise UnavailableError(
                f"{refusal.detail}; nobody was invited: free it and `resume`"
            ) from None
        return await self._port.nodes()
