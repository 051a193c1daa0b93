"""The names of policies and radii, which an experiment's file and policies share.

A new policy's name goes here; what reads the names looks them up when it runs. They
stand alone: a simulation loads none of what else a file needs.
"""

ELIMINATION = "elimination"
INDEX_POLICIES = ("dp-imed",)
POLICIES = (ELIMINATION, *INDEX_POLICIES)
RADII = ("tight", "paper")
