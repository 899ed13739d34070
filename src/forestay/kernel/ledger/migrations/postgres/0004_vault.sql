-- Keys for the sealed parts of records. They can be destroyed.
CREATE TABLE vault (name TEXT COLLATE "C" PRIMARY KEY, key BYTEA NOT NULL);
