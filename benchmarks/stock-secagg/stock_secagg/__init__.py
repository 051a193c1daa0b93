"""Flower's stock SecAgg+ on one number per node."""
