"""A node's half of a secure sum, by the name of the back-end."""

from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.clients.secure_sum.opener import (
    SessionFactory,
    client_session,
    restore_session,
)

__all__ = [
    "ClientKeyring",
    "ClientLimits",
    "SessionFactory",
    "client_session",
    "restore_session",
]
