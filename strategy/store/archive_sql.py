"""Every SQL statement of the archive: salts, and rows with names in them."""

from __future__ import annotations

# An entry commits to its rows by a salted digest, which is no use for guessing names
# once the salt is gone.
SALT_SCHEMA = """
CREATE TABLE salt (number INTEGER PRIMARY KEY, salt TEXT NOT NULL) STRICT;
"""
ADD_SALT = "INSERT INTO salt VALUES (?, ?)"
SALTS = "SELECT number, salt FROM salt"
IS_ARCHIVED = "SELECT count(*) FROM entry WHERE kind = 'archived'"
# What the entry of the archive commits to; its subject is empty.
UNSALTED = (
    "SELECT number, kind, subject FROM entry WHERE ? = '' "
    "AND number NOT IN (SELECT number FROM salt) ORDER BY number"
)

FORGET_SALTS = (
    "DELETE FROM salt WHERE number IN (SELECT number FROM entry WHERE kind = ?)"
)

# Tables with names: what to read, and how to write it back.
INVITATIONS = "SELECT cohort_id, node_id, users FROM invitation"
RETURNED = "SELECT cohort_id, node_id, reason FROM returned"
BLAME = "SELECT cohort_id, node_id, kind, word FROM blame"
NODES = "SELECT meeting, node_id, users, left_out FROM node"
REWRITTEN = (
    ("invitation", INVITATIONS, "INSERT INTO invitation VALUES (?, ?, ?)"),
    ("returned", RETURNED, "INSERT INTO returned VALUES (?, ?, ?)"),
    ("blame", BLAME, "INSERT INTO blame VALUES (?, ?, ?, ?)"),
    ("node", NODES, "INSERT INTO node VALUES (?, ?, ?, ?)"),
)
SUMS = "SELECT cohort_id, result FROM cohort WHERE result IS NOT NULL"
SET_SUM = "UPDATE cohort SET result = ? WHERE cohort_id = ?"
DEALINGS = "SELECT dealing_id, dealers, members, findings FROM dealing"
SET_DEALING = (
    "UPDATE dealing SET dealers = ?, members = ?, findings = ? WHERE dealing_id = ?"
)
VISITORS = "SELECT number, visitor FROM seat WHERE visitor IS NOT NULL"
SET_VISITOR = "UPDATE seat SET visitor = ?, arrival = ? WHERE number = ?"
FORGET_BODIES = "DELETE FROM contribution"

# Outside of any transaction: no deleted row stays in the file or its log.
COMPACT = ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")
