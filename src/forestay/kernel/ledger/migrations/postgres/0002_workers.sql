-- The processes that share this ledger, by the database's clock. `since` begins again when a lease ran out.
CREATE TABLE workers (
    name TEXT COLLATE "C" PRIMARY KEY,
    epoch BIGINT NOT NULL,
    since TIMESTAMPTZ NOT NULL,
    until TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 50);

-- What a process took up that another one had, or nobody. It counts as long as that process lives.
CREATE TABLE claims (
    key TEXT COLLATE "C" PRIMARY KEY,
    owner TEXT COLLATE "C" NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX claims_owner ON claims (owner);
