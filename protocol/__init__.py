"""What both sides must agree on: pure functions and state machines, no I/O."""
