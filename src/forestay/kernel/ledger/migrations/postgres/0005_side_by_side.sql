-- The oldest version whose processes may work on this schema: they run, and start, beside those of this version.
ALTER TABLE migrations ADD COLUMN since BIGINT NOT NULL DEFAULT 0;
UPDATE migrations SET since = number;
ALTER TABLE projections ADD COLUMN since BIGINT NOT NULL DEFAULT 0;
UPDATE projections SET since = version;

-- The schema that a process needs; older processes do not report it.
ALTER TABLE workers ADD COLUMN schema BIGINT NOT NULL DEFAULT 4;
