"""Where outcomes come from."""
