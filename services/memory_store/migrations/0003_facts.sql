-- Facts, their versions, evidence, use and vectors; the outbox of what changed.

-- migrate:up

-- One sentence about one user. The row is the newest belief; fact_version keeps every one. Rows in state deleted or rejected are the
-- tombstones: same_key and vectors stay when the text has left, so that the same fact is not learned again.
CREATE TABLE fact (
  tenant text COLLATE "C" NOT NULL,
  usr text COLLATE "C" NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  workspace text COLLATE "C", -- null: global
  content text CHECK (char_length(content) <= 500),
  same_key bytea NOT NULL,    -- keyed_hash of the content's normal form: equal for what counts as the same fact
  state text NOT NULL CHECK (state IN ('active', 'pending', 'superseded', 'retired', 'deleted', 'rejected')),
  pending_reason text CHECK (pending_reason IN ('limit', 'approval', 'sensitive', 'contested')),
  category text NOT NULL DEFAULT 'other'
    CHECK (category IN ('identity', 'work', 'preference', 'skill', 'constraint', 'other')),
  sensitive boolean NOT NULL DEFAULT false,
  origin text NOT NULL CHECK (origin IN ('person', 'extraction', 'agent')),
  confidence text CHECK (confidence IN ('high', 'medium', 'low')),
  locked boolean NOT NULL DEFAULT false,
  version integer NOT NULL DEFAULT 1,
  -- When it was true, in the precision it was stated: 2027, 2027-05 or 2027-05-14. The days are the first and the last of it, inclusive.
  valid_from text,
  valid_to text,
  valid_from_day date GENERATED ALWAYS AS (
    make_date(left(valid_from, 4)::int, coalesce(nullif(substr(valid_from, 6, 2), '')::int, 1),
              coalesce(nullif(substr(valid_from, 9, 2), '')::int, 1))) STORED,
  valid_to_day date GENERATED ALWAYS AS (
    CASE length(valid_to)
      WHEN 4 THEN make_date(valid_to::int, 12, 31)
      WHEN 7 THEN (make_date(left(valid_to, 4)::int, substr(valid_to, 6, 2)::int, 1) + interval '1 month' - interval '1 day')::date
      ELSE make_date(left(valid_to, 4)::int, substr(valid_to, 6, 2)::int, substr(valid_to, 9, 2)::int)
    END) STORED,
  superseded_by uuid,
  contests uuid,
  run_id uuid,                -- the run that wrote this version; null: a person or an agent
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(), -- also when it came into its state: a tombstone's time
  last_confirmed_at timestamptz,
  PRIMARY KEY (tenant, usr, id),
  FOREIGN KEY (tenant, usr, superseded_by) REFERENCES fact ON DELETE SET NULL (superseded_by),
  FOREIGN KEY (tenant, usr, contests) REFERENCES fact ON DELETE SET NULL (contests),
  CHECK (content IS NOT NULL OR state NOT IN ('active', 'pending')),
  CHECK ((state = 'pending') = (pending_reason IS NOT NULL))
);
-- One per scope among what is or may become active; also finds a person's live facts.
CREATE UNIQUE INDEX fact_same ON fact (tenant, usr, workspace, same_key) NULLS NOT DISTINCT WHERE state IN ('active', 'pending');
CREATE INDEX fact_id ON fact (tenant, id); -- for fact_owner: an id comes without its user

-- What was believed, from known_from until known_to (null: still). Together with the fields that do not change it is what `as_of` shows.
CREATE TABLE fact_version (
  tenant text COLLATE "C" NOT NULL,
  usr text COLLATE "C" NOT NULL,
  fact_id uuid NOT NULL,
  version integer NOT NULL,
  workspace text COLLATE "C",
  content text,
  state text NOT NULL,
  pending_reason text,
  category text NOT NULL,
  sensitive boolean NOT NULL,
  confidence text,
  locked boolean NOT NULL,
  valid_from text,
  valid_to text,
  superseded_by uuid,
  contests uuid,
  known_from timestamptz NOT NULL DEFAULT now(),
  known_to timestamptz,
  actor text NOT NULL,
  reason text,
  PRIMARY KEY (tenant, usr, fact_id, version),
  FOREIGN KEY (tenant, usr, fact_id) REFERENCES fact ON DELETE CASCADE
);

-- Where a fact came from: a chat and the user's own words in it. recorded_at is the chat's position in time.
CREATE TABLE evidence (
  tenant text COLLATE "C" NOT NULL,
  usr text COLLATE "C" NOT NULL,
  fact_id uuid NOT NULL,
  source_kind text NOT NULL DEFAULT 'chat' CHECK (source_kind IN ('chat')),
  event_id text COLLATE "C" NOT NULL, -- the source's id
  workspace text COLLATE "C" NOT NULL,
  thread text COLLATE "C",
  occurred_at timestamptz NOT NULL,
  recorded_at timestamptz NOT NULL,
  quote text CHECK (char_length(quote) <= 300), -- null once its text has left
  version integer NOT NULL,           -- the fact's version it came with
  run_id uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  FOREIGN KEY (tenant, usr, fact_id) REFERENCES fact ON DELETE CASCADE
);
-- One quote once; several of one chat are several rows.
CREATE UNIQUE INDEX evidence_once ON evidence (tenant, usr, fact_id, source_kind, event_id, md5(quote)) NULLS NOT DISTINCT;
CREATE INDEX evidence_source ON evidence (tenant, usr, event_id); -- for chat.deleted

-- Apart from fact: written with each injection, and no belief.
CREATE TABLE fact_use (
  tenant text COLLATE "C" NOT NULL,
  usr text COLLATE "C" NOT NULL,
  fact_id uuid NOT NULL,
  last_used_at timestamptz NOT NULL,
  use_count bigint NOT NULL,
  PRIMARY KEY (tenant, usr, fact_id),
  FOREIGN KEY (tenant, usr, fact_id) REFERENCES fact ON DELETE CASCADE
) WITH (fillfactor = 70);

CREATE TABLE fact_vector (
  tenant text COLLATE "C" NOT NULL,
  usr text COLLATE "C" NOT NULL,
  fact_id uuid NOT NULL,
  encoder text COLLATE "C" NOT NULL,
  version integer NOT NULL, -- the content it was computed from; another than the fact's is stale
  vector bytea NOT NULL,    -- little-endian float32, normalised
  PRIMARY KEY (tenant, usr, fact_id, encoder),
  FOREIGN KEY (tenant, usr, fact_id) REFERENCES fact ON DELETE CASCADE
);

-- Changes on their way to memory.changes, written in the transaction that makes them. A person's lock orders their ids.
CREATE TABLE outbox (
  tenant text COLLATE "C" NOT NULL,
  usr text COLLATE "C" NOT NULL,
  id bigint GENERATED ALWAYS AS IDENTITY,
  change_id uuid NOT NULL DEFAULT gen_random_uuid(),
  at timestamptz NOT NULL DEFAULT now(),
  type text NOT NULL,
  workspace text COLLATE "C",
  fact_id uuid,
  version integer,
  traceparent text,
  PRIMARY KEY (tenant, usr, id)
);
CREATE INDEX outbox_id ON outbox (id);

DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['fact', 'fact_version', 'evidence', 'fact_use', 'fact_vector', 'outbox'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY own_rows ON %I TO keepsake_app '
      'USING (tenant = (SELECT current_tenant()) AND usr = (SELECT current_person()))', name);
  END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON fact, fact_version, evidence, fact_use, fact_vector TO keepsake_app;
GRANT INSERT ON outbox TO keepsake_app;

CREATE POLICY queue ON outbox TO keepsake_queue USING (true);
GRANT SELECT, DELETE ON outbox TO keepsake_queue;

-- Whose fact an id names; these three columns, none of what it says.
CREATE POLICY queue ON fact FOR SELECT TO keepsake_queue USING (true);
GRANT SELECT (tenant, usr, id) ON fact TO keepsake_queue;

-- Calls, edits and runs of one person wait for each other: taken in a statement of its own before anything is counted, since what is
-- counted in the same statement was seen before the lock. Lock order everywhere: person, batch, facts.
CREATE FUNCTION lock_person() RETURNS void LANGUAGE sql VOLATILE
RETURN pg_advisory_xact_lock(hashtextextended(current_tenant() || E'\x1f' || current_person(), 0));

-- The user of the current tenant's fact, or null: an application names a fact by its id alone.
CREATE FUNCTION fact_owner(wanted uuid) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
RETURN (SELECT usr FROM fact WHERE tenant = current_tenant() AND id = wanted);

-- Whose run an id names: acts under a run take tenant and user from the run, never from the request.
CREATE FUNCTION run_owner(wanted uuid, OUT tenant text, OUT usr text, OUT workspace text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
BEGIN ATOMIC
  SELECT r.tenant, r.usr, r.workspace FROM run r WHERE r.id = wanted;
END;

GRANT CREATE ON SCHEMA public TO keepsake_queue;
ALTER FUNCTION fact_owner(uuid) OWNER TO keepsake_queue;
ALTER FUNCTION run_owner(uuid) OWNER TO keepsake_queue;
REVOKE CREATE ON SCHEMA public FROM keepsake_queue;
REVOKE EXECUTE ON FUNCTION fact_owner(uuid), run_owner(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fact_owner(uuid), run_owner(uuid) TO keepsake_app;

INSERT INTO registered_column VALUES
  ('fact', 'tenant', 'code'), ('fact', 'usr', 'id'), ('fact', 'workspace', 'id'), ('fact', 'content', 'text'), ('fact', 'same_key', 'hash'),
  ('fact', 'state', 'code'), ('fact', 'pending_reason', 'code'), ('fact', 'category', 'code'), ('fact', 'origin', 'code'),
  ('fact', 'confidence', 'code'), ('fact', 'valid_from', 'code'), ('fact', 'valid_to', 'code'),
  ('fact_version', 'tenant', 'code'), ('fact_version', 'usr', 'id'), ('fact_version', 'workspace', 'id'),
  ('fact_version', 'content', 'text'), ('fact_version', 'state', 'code'), ('fact_version', 'pending_reason', 'code'),
  ('fact_version', 'category', 'code'), ('fact_version', 'confidence', 'code'), ('fact_version', 'valid_from', 'code'),
  ('fact_version', 'valid_to', 'code'), ('fact_version', 'actor', 'id'), ('fact_version', 'reason', 'code'),
  ('evidence', 'tenant', 'code'), ('evidence', 'usr', 'id'), ('evidence', 'source_kind', 'code'), ('evidence', 'event_id', 'id'),
  ('evidence', 'workspace', 'id'), ('evidence', 'thread', 'id'), ('evidence', 'quote', 'text'),
  ('fact_use', 'tenant', 'code'), ('fact_use', 'usr', 'id'),
  ('fact_vector', 'tenant', 'code'), ('fact_vector', 'usr', 'id'), ('fact_vector', 'encoder', 'code'), ('fact_vector', 'vector', 'text'),
  ('outbox', 'tenant', 'code'), ('outbox', 'usr', 'id'), ('outbox', 'type', 'code'), ('outbox', 'workspace', 'id'),
  ('outbox', 'traceparent', 'code');

-- migrate:down
DROP FUNCTION run_owner(uuid), fact_owner(uuid), lock_person();
DROP TABLE outbox, fact_vector, fact_use, evidence, fact_version, fact;
