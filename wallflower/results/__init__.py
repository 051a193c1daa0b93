"""What a run has come to, for people and for programs."""
