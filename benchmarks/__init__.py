"""What the figures in README and docs come from; each has a make target."""
