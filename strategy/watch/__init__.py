"""Metrics, logs and health of a run."""
