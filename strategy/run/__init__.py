"""One experiment from its first cohort to its winner."""
