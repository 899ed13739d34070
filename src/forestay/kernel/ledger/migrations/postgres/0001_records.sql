-- Streams and their records. A stream has its head in its own row, so that a lost tail is noticed.
CREATE TABLE streams (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL UNIQUE,
    head BIGINT NOT NULL,
    hash BYTEA NOT NULL
) WITH (fillfactor = 60);  -- heads change often: this leaves room for them on the same page

CREATE TABLE records (
    stream BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    pos BIGINT NOT NULL UNIQUE,
    ts BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    payload BYTEA NOT NULL,
    attrs BYTEA,
    hash BYTEA NOT NULL,
    PRIMARY KEY (stream, seq)
);

-- The version of each projection's tables.
CREATE TABLE projections (
    name TEXT COLLATE "C" PRIMARY KEY,
    version BIGINT NOT NULL
);

-- The number to add to this server's transaction numbers, so that positions keep rising after a restore.
CREATE TABLE numbering (
    base BIGINT NOT NULL
);
INSERT INTO numbering VALUES (0);

CREATE FUNCTION digest(a TEXT, b TEXT, c TEXT) RETURNS TEXT IMMUTABLE PARALLEL SAFE LANGUAGE sql AS $$
    SELECT encode(sha256(convert_to(a, 'UTF8') || '\x00' || convert_to(b, 'UTF8') || '\x00' || convert_to(c, 'UTF8')),
                  'hex')
$$;
