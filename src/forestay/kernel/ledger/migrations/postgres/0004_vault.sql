-- Keys that can be destroyed, for what the records hold sealed.
CREATE TABLE vault (name TEXT COLLATE "C" PRIMARY KEY, key BYTEA NOT NULL);
