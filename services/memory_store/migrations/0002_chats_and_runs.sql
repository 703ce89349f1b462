-- From Kafka to a worker: staged chats, the batch each of them waits in, barriers, runs.

-- migrate:up

-- One per (tenant, user, workspace) that ever staged a chat. Without text, small, rewritten with each chat: hence the fillfactor.
-- claimable_at is all that claiming looks at. Null: nothing is due and nothing will be. Future: idle time, backoff or a lease.
-- Past: due. With run_id set it is the end of that run's lease; past it, the run is lost.
CREATE TABLE batch (
  tenant text COLLATE "C" NOT NULL,
  usr text COLLATE "C" NOT NULL,
  workspace text COLLATE "C" NOT NULL,
  pending integer NOT NULL,
  oldest_staged_at timestamptz, -- of the pending chats
  last_staged_at timestamptz NOT NULL,
  claimable_at timestamptz,
  asked_at timestamptz,         -- somebody asked for a run; stands until every chat staged by then is read
  not_before timestamptz,       -- backoff after a failed or released run
  run_id uuid,                  -- the lease and the fence
  attempts smallint NOT NULL DEFAULT 0,
  lost smallint NOT NULL DEFAULT 0,
  -- Position of the last chat of the window that failed first: attempts go back to 0 when no pending chat is left up to here.
  failed_at timestamptz,
  failed_offset bigint,
  timezone text,                -- the last one a chat named: "last known" of a user is that of their latest batch
  PRIMARY KEY (tenant, usr, workspace)
) WITH (fillfactor = 70);
-- By tenant first: claims are fair between tenants, and a tenant that is off is passed over whole.
CREATE INDEX batch_claimable ON batch (tenant, claimable_at) WHERE claimable_at IS NOT NULL;

-- One per event that was not dropped at once. The row outlives its text: it is the idempotency key.
--   pending   waits to be read          read      an applied run read it
--   excluded  behind a barrier          dead      given up after the last try; retry makes it pending
--   deleted   taken back by chat.deleted, before or after it came (then there was never any text)
CREATE TABLE chat (
  tenant text COLLATE "C" NOT NULL,
  usr text COLLATE "C" NOT NULL,
  event_id text COLLATE "C" NOT NULL,
  workspace text COLLATE "C" NOT NULL,
  thread text COLLATE "C",
  state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'read', 'excluded', 'dead', 'deleted')),
  prompt text,                  -- texts are null once they have left
  response text,
  occurred_at timestamptz NOT NULL,
  occurred_offset smallint,     -- minutes east of UTC that occurred_at was written with; null: the broker's time
  timezone text,
  recorded_at timestamptz NOT NULL, -- with src_offset the position: the broker's append time, then the offset
  src_offset bigint NOT NULL,
  src_partition integer NOT NULL,
  staged_at timestamptz NOT NULL DEFAULT now(),
  digest bytea,                 -- keyed, of workspace, thread, prompt, response as they came: same id, other content?
  repeat_key bytea,             -- keyed, of workspace, prompt, response and the given occurred_at: another id, same chat?
  traceparent text,
  run_id uuid,                  -- the run that read it or gave it up
  reason text,                  -- why it is dead or excluded
  settled_at timestamptz,       -- when it stopped being pending
  PRIMARY KEY (tenant, usr, event_id)
);
CREATE INDEX chat_pending ON chat (tenant, usr, workspace, recorded_at, src_offset) WHERE state = 'pending';
CREATE UNIQUE INDEX chat_repeat ON chat (tenant, usr, repeat_key) WHERE repeat_key IS NOT NULL;
CREATE INDEX chat_dead ON chat (tenant, usr, settled_at) WHERE state = 'dead';
CREATE INDEX chat_recorded_at ON chat USING brin (recorded_at); -- for retention

-- Nothing from `since` up to before the position (until, until_offset) is read any more: of one user (or of all: empty usr_key), one
-- workspace and one thread (or of all: null). The user stands here as a hash, so that a barrier can outlive an erased person.
CREATE TABLE barrier (
  tenant text COLLATE "C" NOT NULL,
  usr_key bytea NOT NULL,
  workspace text COLLATE "C",
  thread text COLLATE "C",
  kind text NOT NULL CHECK (kind IN ('reset', 'off', 'opted_out', 'erased')), -- also the reason of what it drops
  since timestamptz NOT NULL DEFAULT '-infinity',
  until timestamptz NOT NULL,
  until_offset bigint NOT NULL DEFAULT 0,
  UNIQUE NULLS NOT DISTINCT (tenant, usr_key, workspace, thread, kind, since)
);

-- One try at one window of chats. Candidates, decisions and results stay, so that a person sees why a fact exists and another does not.
CREATE TABLE run (
  tenant text COLLATE "C" NOT NULL,
  usr text COLLATE "C" NOT NULL,
  id uuid NOT NULL,
  workspace text COLLATE "C" NOT NULL,
  event_ids text[] NOT NULL, -- the window, oldest first
  worker text NOT NULL,
  state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'applied', 'failed', 'released', 'lost')),
  outcome text,
  reason text,
  attempt smallint NOT NULL,
  extractor text,
  model text,
  prompt_version text,
  -- json, not jsonb: kept as it came, also what jsonb would refuse (\u0000).
  candidates json NOT NULL DEFAULT '[]', -- [CandidateRecord]
  decisions json NOT NULL DEFAULT '[]',  -- [Decision]
  results json NOT NULL DEFAULT '[]',    -- [DecisionResult]: the stored answer
  started_at timestamptz NOT NULL DEFAULT now(),
  ended_at timestamptz,
  PRIMARY KEY (tenant, usr, id)
);
-- Not unique: the id alone is the worker's, and a key that begins with it would not begin with tenant, usr. claim_run locks the id instead.
CREATE INDEX run_id ON run (id);

-- Entries of KEEPSAKE_MODELS whose breaker workers reported open; of interest while it is fresh ("why is nothing learned?").
CREATE TABLE open_breaker (
  model text PRIMARY KEY,
  reported_at timestamptz NOT NULL
);

DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['batch', 'chat', 'run'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY own_rows ON %I TO keepsake_app '
      'USING (tenant = (SELECT current_tenant()) AND usr = (SELECT current_person()))', name);
    EXECUTE format('CREATE POLICY queue ON %I TO keepsake_queue USING (true)', name);
  END LOOP;
END $$;
CREATE POLICY whole_tenant ON run FOR SELECT TO keepsake_app
  USING (tenant = (SELECT current_tenant()) AND (SELECT whole_tenant()));
CREATE POLICY whole_tenant_dead ON chat FOR SELECT TO keepsake_app
  USING (tenant = (SELECT current_tenant()) AND state = 'dead' AND (SELECT whole_tenant()));

-- No policy for keepsake_app on barrier: it reaches them only through functions, which hash the user.
ALTER TABLE barrier ENABLE ROW LEVEL SECURITY;
CREATE POLICY queue ON barrier TO keepsake_queue USING (true);

GRANT SELECT, INSERT, UPDATE, DELETE ON batch, chat, run TO keepsake_app;
GRANT SELECT, INSERT, UPDATE ON batch, chat, run TO keepsake_queue;
GRANT SELECT, INSERT, UPDATE ON barrier TO keepsake_queue;
GRANT SELECT, INSERT, UPDATE ON open_breaker TO keepsake_app;

INSERT INTO registered_column VALUES
  ('batch', 'tenant', 'code'), ('batch', 'usr', 'id'), ('batch', 'workspace', 'id'), ('batch', 'timezone', 'code'),
  ('chat', 'tenant', 'code'), ('chat', 'usr', 'id'), ('chat', 'event_id', 'id'), ('chat', 'workspace', 'id'), ('chat', 'thread', 'id'),
  ('chat', 'state', 'code'), ('chat', 'prompt', 'text'), ('chat', 'response', 'text'), ('chat', 'timezone', 'code'),
  ('chat', 'digest', 'hash'), ('chat', 'repeat_key', 'hash'), ('chat', 'traceparent', 'code'), ('chat', 'reason', 'code'),
  ('barrier', 'tenant', 'code'), ('barrier', 'usr_key', 'hash'), ('barrier', 'workspace', 'id'), ('barrier', 'thread', 'id'),
  ('barrier', 'kind', 'code'),
  ('run', 'tenant', 'code'), ('run', 'usr', 'id'), ('run', 'workspace', 'id'), ('run', 'event_ids', 'id'), ('run', 'worker', 'code'),
  ('run', 'state', 'code'), ('run', 'outcome', 'code'), ('run', 'reason', 'code'), ('run', 'extractor', 'code'), ('run', 'model', 'code'),
  ('run', 'prompt_version', 'code'), ('run', 'candidates', 'text'), ('run', 'decisions', 'text'), ('run', 'results', 'code'),
  ('open_breaker', 'model', 'code');

-- migrate:down
DROP TABLE open_breaker, run, barrier, chat, batch;
