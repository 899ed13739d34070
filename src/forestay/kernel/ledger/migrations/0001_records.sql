-- Streams and their records. A stream has its head in its own row, so that a lost tail is noticed.
CREATE TABLE streams (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    head INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;

CREATE TABLE records (
    pos INTEGER PRIMARY KEY,
    stream INTEGER NOT NULL REFERENCES streams (id),
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    type TEXT NOT NULL,
    ts INTEGER NOT NULL,
    payload BLOB NOT NULL,
    attrs BLOB,
    hash BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX records_by_stream ON records (stream, seq);

-- The version of each projection's tables.
CREATE TABLE projections (
    name TEXT PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
