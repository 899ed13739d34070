-- The processes that share this ledger, by the database's clock. `since` starts again after a lease has expired.
CREATE TABLE workers (
    name TEXT COLLATE "C" PRIMARY KEY,
    epoch BIGINT NOT NULL,
    since TIMESTAMPTZ NOT NULL,
    until TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 50);

-- The keys that a process has claimed. A claim counts as long as its process lives.
CREATE TABLE claims (
    key TEXT COLLATE "C" PRIMARY KEY,
    owner TEXT COLLATE "C" NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX claims_owner ON claims (owner);
