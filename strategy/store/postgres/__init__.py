"""PostgreSQL as a run's store: several processes on several hosts share one run.

Each run has a schema of its own. Nothing is lost and nothing is done twice when the
server is killed and started again: what was committed is on its disk, a step of which
nothing was kept is repeated, and where the answer to a commit was lost, PostgreSQL is
asked what became of it (`pg_xact_status`). One process has the lease to write the run.
Its token is a *fence*: every transaction of the holder looks at it first, so that one
who lost the lease writes nothing any more, whatever it believes.
"""
