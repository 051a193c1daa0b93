"""Which Wallflower this is, and the refusal to run another's app."""

from __future__ import annotations

from wallflower.protocol.errors import ConfigError

__version__ = "0.1.0"


def require_version(version: str) -> None:
    """Refuse an app made for another version than the one installed here."""
    if version != __version__:
        raise ConfigError(
            "wallflower-app",
            f"was made for wallflower {version}, and {__version__} is installed here; "
            "install the same version on the server and on every node",
        )
