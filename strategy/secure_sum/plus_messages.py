"""What a secagg-plus server says in each stage, from what it has heard so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wallflower.protocol.secure_sum.backends import ADVERTISE, CONFIRM, MASK, SHARE
from wallflower.protocol.secure_sum.keys import split
from wallflower.protocol.secure_sum.secagg_plus import PLUS_SEAL_BYTES
from wallflower.protocol.wire.secure_sum_pb2 import (
    AdvertiseRequest,
    ConfirmRequest,
    MaskRequest,
    ShareRequest,
    UnmaskRequest,
)

if TYPE_CHECKING:
    from wallflower.strategy.secure_sum.secagg_plus import SecaggPlusServer


def stage_messages(server: SecaggPlusServer) -> dict[str, bytes]:
    """Return one message for every party that the server's stage asks."""
    if server.stage == ADVERTISE:
        payload = AdvertiseRequest(invited=server.roster_note).SerializeToString()
        return {party: server.envelope(party, payload) for party in server.parties}
    if server.stage == SHARE:
        return {p: server.envelope(p, _share(server, p)) for p in server.neighbours}
    if server.stage == MASK:
        return _mask(server)
    if server.stage == CONFIRM:
        survivors = server.survivors
        payload = ConfirmRequest(
            survivors=server.survivor_set(survivors)
        ).SerializeToString()
        return {party: server.envelope(party, payload) for party in survivors}
    return _unmask(server)


def _share(server: SecaggPlusServer, party: str) -> bytes:
    neighbours = server.neighbours[party]
    return ShareRequest(
        roster=server.roster_note,
        neighbours=neighbours,
        keys=[server.keys[p] for p in neighbours],
        own_mask_key=server.keys[party].mask_key,
    ).SerializeToString()


def _mask(server: SecaggPlusServer) -> dict[str, bytes]:
    survivor_set = server.survivor_set(server.sharers)
    # sealed[a][b]: what a sealed for its neighbour b.
    sealed = {
        party: dict(
            zip(
                server.neighbours[party],
                split(
                    server.uploads[party].sealed,
                    len(server.neighbours[party]),
                    PLUS_SEAL_BYTES,
                ),
                strict=True,
            )
        )
        for party in server.sharers
    }
    messages = {}
    for party in server.sharers:
        senders = [
            (position, neighbour)
            for position, neighbour in enumerate(server.neighbours[party])
            if neighbour in server.sharers
        ]
        payload = MaskRequest(
            sharers=survivor_set,
            senders=[position for position, _ in senders],
            salts=b"".join(server.uploads[p].salt for _, p in senders),
            users=[server.uploads[p].users for _, p in senders],
            sealed=b"".join(sealed[p][party] for _, p in senders),
        ).SerializeToString()
        messages[party] = server.envelope(party, payload)
    return messages


def _unmask(server: SecaggPlusServer) -> dict[str, bytes]:
    survivor_set = server.survivor_set(server.survivors)
    malicious = server.threat.malicious_server
    asked = server.confirmations if malicious else server.masked
    messages = {}
    for party in asked:
        present, dropped = server.split_neighbours(party)
        confirmed = [
            position
            for position in present
            if server.neighbours[party][position] in server.confirmations
        ]
        payload = UnmaskRequest(
            survivors=survivor_set,
            present=present,
            dropped=dropped,
            confirmed=confirmed,
            signatures=[
                server.confirmations[server.neighbours[party][position]]
                for position in confirmed
            ],
        ).SerializeToString()
        messages[party] = server.envelope(party, payload)
    return messages
