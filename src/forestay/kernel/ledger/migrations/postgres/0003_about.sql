-- A process's description of itself, as JSON.
ALTER TABLE workers ADD COLUMN about TEXT NOT NULL DEFAULT '{}';
