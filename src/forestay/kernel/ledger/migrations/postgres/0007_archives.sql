-- Compressed parts of streams, moved out of the table of records. `places` has the position and the hash of each record,
-- which stay when `data` is removed. An archive counts when it is `sealed`; before, its records are in the table.
CREATE TABLE archives (
    stream BIGINT NOT NULL,
    first BIGINT NOT NULL,
    last BIGINT NOT NULL,
    low BIGINT NOT NULL,
    high BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    places BYTEA NOT NULL,
    data BYTEA,
    digest TEXT COLLATE "C" NOT NULL,
    sealed BIGINT NOT NULL,
    removed BIGINT,
    policy TEXT COLLATE "C",
    PRIMARY KEY (stream, first)
);
CREATE INDEX archives_high ON archives (high, low, stream, first);

-- A record may leave the table only when an archive has it.
DROP TRIGGER records_stay ON records;
CREATE TRIGGER records_stay BEFORE UPDATE OR TRUNCATE ON records
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE FUNCTION refuse_loss() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM archives a WHERE a.stream = OLD.stream AND a.sealed = 1 AND OLD.seq BETWEEN a.first AND a.last
    ) THEN
        RAISE EXCEPTION 'records are append-only';
    END IF;
    RETURN OLD;
END
$$;
CREATE TRIGGER records_remain BEFORE DELETE ON records FOR EACH ROW EXECUTE FUNCTION refuse_loss();

-- A sealed archive never changes, except that its data can be removed, with a record about that.
CREATE FUNCTION refuse_change_of_archive() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'archives are append-only';
END
$$;
CREATE TRIGGER archives_stay BEFORE UPDATE ON archives FOR EACH ROW WHEN (
    OLD.sealed = 1 AND NOT (
        NEW.stream = OLD.stream AND NEW.first = OLD.first AND NEW.last = OLD.last AND NEW.hash = OLD.hash
        AND NEW.places = OLD.places AND NEW.digest = OLD.digest AND NEW.sealed = 1 AND OLD.removed IS NULL
        AND NEW.data IS NULL AND NEW.removed IS NOT NULL AND NEW.policy IS NOT NULL
    )
) EXECUTE FUNCTION refuse_change_of_archive();
CREATE TRIGGER archives_remain BEFORE DELETE ON archives FOR EACH ROW WHEN (OLD.sealed = 1)
    EXECUTE FUNCTION refuse_change_of_archive();
CREATE TRIGGER archives_untruncated BEFORE TRUNCATE ON archives
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_archive();
