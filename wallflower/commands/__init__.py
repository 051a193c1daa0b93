"""One module per sub-command; heavy imports stay inside the functions."""
