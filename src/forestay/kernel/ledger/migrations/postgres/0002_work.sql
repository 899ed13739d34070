-- Who is alive, by the database's clock.
CREATE TABLE workers (
    name TEXT COLLATE "C" PRIMARY KEY,
    until TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 50);

-- What there is to do. `due` is infinity while nothing is; each wake-up is a new generation.
CREATE TABLE work (
    key TEXT COLLATE "C" PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    due TIMESTAMPTZ NOT NULL,
    generation BIGINT NOT NULL,
    owner TEXT COLLATE "C"
) WITH (fillfactor = 70);
CREATE INDEX work_ready ON work (tenant, due) WHERE owner IS NULL AND due < 'infinity';
CREATE INDEX work_owned ON work (owner) WHERE owner IS NOT NULL;
