"""The ServerApp, as installed."""

from wallflower.strategy.server_app import app

__all__ = ["app"]
