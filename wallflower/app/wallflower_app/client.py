"""The ClientApp, as installed."""

from wallflower.clients.client_app import app

__all__ = ["app"]
