"""Runs with people who arrive: seats, trustees, and their orchestrator."""
