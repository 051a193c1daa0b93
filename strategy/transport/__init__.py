"""The ways to reach nodes: in memory, through Flower's grid."""
