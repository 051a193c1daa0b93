"""What travels between server and nodes, whoever carries it."""
