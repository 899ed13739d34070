-- Compressed parts of streams, moved out of the table of records. `places` has the position and the hash of each record,
-- which stay when `data` is removed. An archive counts when it is `sealed`; before, its records are in the table.
CREATE TABLE archives (
    stream INTEGER NOT NULL REFERENCES streams (id),
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    low INTEGER NOT NULL,
    high INTEGER NOT NULL,
    hash BLOB NOT NULL,
    places BLOB NOT NULL,
    data BLOB,
    digest TEXT NOT NULL,
    sealed INTEGER NOT NULL,
    removed INTEGER,
    policy TEXT,
    PRIMARY KEY (stream, first)
) STRICT;
CREATE INDEX archives_high ON archives (high, low, stream, first);

-- A record may leave the table only when an archive has it.
DROP TRIGGER records_remain;
CREATE TRIGGER records_remain BEFORE DELETE ON records
WHEN NOT EXISTS (
    SELECT 1 FROM archives a WHERE a.stream = OLD.stream AND a.sealed = 1 AND OLD.seq BETWEEN a.first AND a.last
)
BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;

-- A sealed archive never changes, except that its data can be removed, with a record about that.
CREATE TRIGGER archives_stay BEFORE UPDATE ON archives
WHEN OLD.sealed = 1 AND NOT (
    NEW.stream = OLD.stream AND NEW.first = OLD.first AND NEW.last = OLD.last AND NEW.hash = OLD.hash
    AND NEW.places = OLD.places AND NEW.digest = OLD.digest AND NEW.sealed = 1 AND OLD.removed IS NULL
    AND NEW.data IS NULL AND NEW.removed IS NOT NULL AND NEW.policy IS NOT NULL
)
BEGIN SELECT RAISE(ABORT, 'archives are append-only'); END;
CREATE TRIGGER archives_remain BEFORE DELETE ON archives WHEN OLD.sealed = 1
BEGIN SELECT RAISE(ABORT, 'archives are append-only'); END;
