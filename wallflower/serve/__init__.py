"""The server of people who arrive: worker processes with two wires."""
