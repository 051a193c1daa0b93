"""A node's half of a secure sum, by the name of the back-end."""

from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.clients.secure_sum.opener import (
    SessionOpener,
    client_session,
    restore_session,
)

__all__ = [
    "ClientKeyring",
    "ClientLimits",
    "SessionOpener",
    "client_session",
    "restore_session",
]
