"""Import every mechanism so that the registry is full."""

import protocol.mechanism_concentrated
import protocol.mechanism_local
import protocol.mechanism_pure
import protocol.mechanism_renyi
import protocol.mechanism_trusted  # noqa: F401
