"""What an experiment will promise and cost."""
