"""People who arrive: one handler of their polls, whatever wire carries the bytes."""
