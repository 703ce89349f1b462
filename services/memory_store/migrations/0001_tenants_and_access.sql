-- Roles, tenants, their settings, keys and tokens; and what every later table builds on.
--
-- Who is who:
--   keepsake_owner  runs these migrations and owns every table. No service logs in as it. deploy/bootstrap.sql makes it, with CREATEROLE.
--   keepsake_app    what memory-store logs in as. Owns nothing, cannot bypass row-level security.
--   keepsake_queue  nobody logs in as it. Owns the few SECURITY DEFINER functions that work across people (stage, claim, relay, …).
--                   It has no grant on what facts say, so that none of these functions can leak a fact.
-- Roles belong to the whole server: they may be there already, from another database.
--
-- Row-level security. A transaction says for whom it works:
--   keepsake.tenant, keepsake.user   set by `SELECT set_config('keepsake.tenant', $1, true)`; unset, '' or anything that is no
--                                    tenant's or user's id shows no rows ('' is what is left once a transaction has ended)
--   keepsake.scope = 'tenant'        an administrator's list across the tenant's users: reads runs, dead letters and the audit log,
--                                    nothing else, and writes nothing
-- The policies ask `(SELECT …)` so that Postgres computes it once per query and uses indexes. Foreign and unique keys are checked past
-- row-level security, so each begins with tenant, usr: a key that collides tells nothing about another person.
--
-- Ids are compared byte for byte: COLLATE "C" everywhere. `usr` is the user: USER is a word of SQL.

-- migrate:up
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'keepsake_app') THEN
    CREATE ROLE keepsake_app LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'keepsake_queue') THEN
    CREATE ROLE keepsake_queue NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB;
  END IF;
  -- To hand functions over to it; it needs CREATE on the schema for as long as it is handed one.
  IF NOT pg_has_role(current_user, 'keepsake_queue', 'SET') THEN
    EXECUTE format('GRANT keepsake_queue TO %I WITH INHERIT FALSE, SET TRUE', current_user);
  END IF;
  -- For /readyz: is the schema the one this release needs?
  IF to_regclass('schema_migrations') IS NOT NULL THEN
    GRANT SELECT ON schema_migrations TO keepsake_app;
  END IF;
END $$;

GRANT USAGE ON SCHEMA public TO keepsake_app, keepsake_queue;

CREATE FUNCTION current_tenant() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN nullif(current_setting('keepsake.tenant', true), '');

CREATE FUNCTION current_person() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN nullif(current_setting('keepsake.user', true), '');

CREATE FUNCTION whole_tenant() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(current_setting('keepsake.scope', true), '') = 'tenant';

-- What each text, json, bytea or vector column holds. A schema test fails on a column that is missing here; erase and retention walk
-- the rows that hold `text`.
--   text  what people or models wrote          id    ids that applications chose (they may name a person)
--   hash  a hash                               code  a closed set, or a name an operator chose
CREATE TABLE registered_column (
  table_name text NOT NULL,
  column_name text NOT NULL,
  holds text NOT NULL CHECK (holds IN ('text', 'id', 'hash', 'code')),
  PRIMARY KEY (table_name, column_name)
);

CREATE TABLE tenant (
  tenant text COLLATE "C" PRIMARY KEY,
  -- Key of this tenant's hashes (erased people, tombstones, digests of chats): without it they cannot be tried out word by word.
  hash_key bytea NOT NULL DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
  created_at timestamptz NOT NULL DEFAULT now()
);

-- 32 bytes; the same for the same tenant and value.
CREATE FUNCTION keyed_hash(hash_key bytea, value text) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN sha256(hash_key || convert_to(value, 'UTF8'));

CREATE TABLE tenant_setting (
  tenant text COLLATE "C" PRIMARY KEY REFERENCES tenant,
  personalization boolean NOT NULL,
  auto_extraction boolean NOT NULL DEFAULT true,
  require_approval boolean NOT NULL DEFAULT false,
  sensitive text NOT NULL DEFAULT 'approve' CHECK (sensitive IN ('skip', 'approve', 'allow')),
  max_workspace_facts integer NOT NULL DEFAULT 20 CHECK (max_workspace_facts >= 0),
  max_global_facts integer NOT NULL DEFAULT 5 CHECK (max_global_facts >= 0),
  model text,
  heading text NOT NULL DEFAULT '## Things I Remember About You',
  -- Since when nothing is learned, null while it is: once learning is on again, a barrier covers what was said from here to then.
  off_since timestamptz,
  updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE workspace_setting (
  tenant text COLLATE "C" NOT NULL REFERENCES tenant,
  workspace text COLLATE "C" NOT NULL,
  chat_model text,
  agent_model text,
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, workspace)
);

CREATE TABLE user_setting (
  tenant text COLLATE "C" NOT NULL,
  usr text COLLATE "C" NOT NULL,
  memory boolean NOT NULL DEFAULT true,
  learning boolean NOT NULL DEFAULT true,
  off_since timestamptz,
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, usr)
);

CREATE TABLE api_key (
  tenant text COLLATE "C" NOT NULL REFERENCES tenant,
  id text COLLATE "C" NOT NULL,
  name text NOT NULL,
  sha256 bytea NOT NULL CHECK (length(sha256) = 32),
  scopes text[] NOT NULL,
  workspaces text[], -- null: all; empty: none
  created_at timestamptz NOT NULL DEFAULT now(),
  created_by text NOT NULL,
  revoked_at timestamptz,
  PRIMARY KEY (tenant, id)
);
CREATE INDEX api_key_sha256 ON api_key (sha256);

CREATE TABLE user_token (
  tenant text COLLATE "C" NOT NULL REFERENCES tenant,
  usr text COLLATE "C" NOT NULL, -- '' is nobody: an administrator's token for the whole tenant
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  sha256 bytea NOT NULL CHECK (length(sha256) = 32),
  minted_by text NOT NULL, -- id of the key, or 'operator'; the token ends with its key
  scopes text[] NOT NULL,
  workspaces text[],
  admin boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (tenant, usr, id)
);
CREATE INDEX user_token_sha256 ON user_token (sha256);
CREATE INDEX user_token_expires_at ON user_token (expires_at);

-- Who changed what. Append-only (no role that serves may update or delete) and without any text; erase rewrites usr and actor to hashes.
CREATE TABLE audit (
  tenant text COLLATE "C" NOT NULL,
  usr text COLLATE "C" NOT NULL, -- '' where no user is concerned, as with keys
  id bigint GENERATED ALWAYS AS IDENTITY,
  at timestamptz NOT NULL DEFAULT now(),
  actor text NOT NULL, -- operator, key:<id>, user:<user>, run:<id>
  action text NOT NULL,
  fact_id uuid,
  from_version integer,
  to_version integer,
  code text,
  PRIMARY KEY (tenant, usr, id)
);
CREATE INDEX audit_tenant_id ON audit (tenant, id);

-- By tenant alone: no person's rows stand in these.
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['tenant_setting', 'workspace_setting', 'api_key'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY own_tenant ON %I TO keepsake_app USING (tenant = (SELECT current_tenant()))', name);
  END LOOP;
END $$;

-- By tenant and person.
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['user_setting', 'audit'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY own_rows ON %I TO keepsake_app '
      'USING (tenant = (SELECT current_tenant()) AND usr = (SELECT current_person()))', name);
  END LOOP;
END $$;
-- Acts on a tenant's keys and settings concern no user.
CREATE POLICY of_nobody ON audit TO keepsake_app USING (tenant = (SELECT current_tenant()) AND usr = '');
CREATE POLICY whole_tenant ON audit FOR SELECT TO keepsake_app
  USING (tenant = (SELECT current_tenant()) AND (SELECT whole_tenant()));

ALTER TABLE user_token ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON user_token TO keepsake_app
  USING (tenant = (SELECT current_tenant()) AND (usr = (SELECT current_person()) OR usr = ''));

-- The queue functions decide by these; find_credential (below) reads the last two.
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['tenant_setting', 'workspace_setting', 'user_setting', 'api_key', 'user_token'] LOOP
    EXECUTE format('CREATE POLICY queue ON %I FOR SELECT TO keepsake_queue USING (true)', name);
    EXECUTE format('GRANT SELECT ON %I TO keepsake_queue', name);
  END LOOP;
END $$;

GRANT SELECT ON registered_column TO keepsake_app;
GRANT SELECT, INSERT ON tenant TO keepsake_app;
GRANT SELECT ON tenant TO keepsake_queue;
GRANT SELECT, INSERT, UPDATE ON tenant_setting, workspace_setting, user_setting, api_key TO keepsake_app;
GRANT SELECT, INSERT, DELETE ON user_token TO keepsake_app;
GRANT SELECT, INSERT ON audit TO keepsake_app;

-- Who holds a key or token: the tenant is not known before. Nothing for a revoked key, an expired token or one whose key was revoked.
CREATE FUNCTION find_credential(wanted bytea)
RETURNS TABLE (kind text, tenant text, id text, usr text, scopes text[], workspaces text[], admin boolean, expires_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
BEGIN ATOMIC
  SELECT 'key', k.tenant, k.id, NULL, k.scopes, k.workspaces, false, NULL::timestamptz
  FROM api_key k WHERE k.sha256 = wanted AND k.revoked_at IS NULL
  UNION ALL
  SELECT 'token', t.tenant, t.id::text, nullif(t.usr, ''), t.scopes, t.workspaces, t.admin, t.expires_at
  FROM user_token t
  WHERE t.sha256 = wanted AND t.expires_at > now()
    AND (t.minted_by = 'operator' OR EXISTS (
      SELECT FROM api_key k WHERE k.tenant = t.tenant AND k.id = t.minted_by AND k.revoked_at IS NULL));
END;

GRANT CREATE ON SCHEMA public TO keepsake_queue;
ALTER FUNCTION find_credential(bytea) OWNER TO keepsake_queue;
REVOKE CREATE ON SCHEMA public FROM keepsake_queue;
REVOKE EXECUTE ON FUNCTION find_credential(bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_credential(bytea) TO keepsake_app;

INSERT INTO registered_column VALUES
  ('registered_column', 'table_name', 'code'), ('registered_column', 'column_name', 'code'), ('registered_column', 'holds', 'code'),
  ('tenant', 'tenant', 'code'), ('tenant', 'hash_key', 'hash'),
  ('tenant_setting', 'tenant', 'code'), ('tenant_setting', 'sensitive', 'code'), ('tenant_setting', 'model', 'code'),
  ('tenant_setting', 'heading', 'code'),
  ('workspace_setting', 'tenant', 'code'), ('workspace_setting', 'workspace', 'id'), ('workspace_setting', 'chat_model', 'code'),
  ('workspace_setting', 'agent_model', 'code'),
  ('user_setting', 'tenant', 'code'), ('user_setting', 'usr', 'id'),
  ('api_key', 'tenant', 'code'), ('api_key', 'id', 'code'), ('api_key', 'name', 'code'), ('api_key', 'sha256', 'hash'),
  ('api_key', 'scopes', 'code'), ('api_key', 'workspaces', 'id'), ('api_key', 'created_by', 'id'),
  ('user_token', 'tenant', 'code'), ('user_token', 'usr', 'id'), ('user_token', 'sha256', 'hash'), ('user_token', 'minted_by', 'code'),
  ('user_token', 'scopes', 'code'), ('user_token', 'workspaces', 'id'),
  ('audit', 'tenant', 'code'), ('audit', 'usr', 'id'), ('audit', 'actor', 'id'), ('audit', 'action', 'code'), ('audit', 'code', 'code');

-- migrate:down
DROP FUNCTION find_credential(bytea);
DROP TABLE audit, user_token, api_key, user_setting, workspace_setting, tenant_setting, tenant, registered_column;
DROP FUNCTION keyed_hash(bytea, text), whole_tenant(), current_person(), current_tenant();
REVOKE USAGE ON SCHEMA public FROM keepsake_app, keepsake_queue;
-- The roles stay: they belong to the server.
