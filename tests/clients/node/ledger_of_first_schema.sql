BEGIN TRANSACTION;
CREATE TABLE spend (
    number    INTEGER PRIMARY KEY,
    node_id   TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    cohort_id TEXT NOT NULL,
    kind      TEXT NOT NULL,
    epsilon   TEXT NOT NULL,
    users     TEXT NOT NULL,
    at        REAL NOT NULL,
    UNIQUE (node_id, run_id, cohort_id)
) STRICT;
INSERT INTO "spend" VALUES(1,'n','r','c0','pure','1/2','["u1", "u2"]',1.79484784593699765202e+09);
INSERT INTO "spend" VALUES(2,'n','r','c1','renyi','1/10','["u1", "u2"]',1.79484784593748402598e+09);
INSERT INTO "spend" VALUES(3,'n','r','c2','concentrated','1/10','["u1", "u2"]',1.79484784593784070017e+09);
CREATE TRIGGER spend_is_not_changed BEFORE UPDATE ON spend
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER spend_is_not_removed BEFORE DELETE ON spend
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
COMMIT;
