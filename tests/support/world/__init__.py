"""A whole deployment in one thread, on virtual time, with faults from a seed.

Real: orchestrator, gRPC server, connections, nodes, ledgers, spool, journal and their
SQLite files. Simulated: what lies under them. Processes that die between two
instructions (`processes`), threads (`threads`), disks that fill up and tear (`disk`),
the network under gRPC (`network`). A schedule is a list of faults (`schedule`); one
seed, one schedule, one course of events. `soak` runs many and shrinks those that fail.
"""
