-- What leaves with time, page by page, and what the store shows of itself.
--
-- Each sweep_… is one page: at most so many rows, in a transaction of its own, of what it finds by an index that holds nothing else. None
-- of them waits for a batch, chat or run that somebody has locked: it comes with the next sweep. A page that ended early was the last.

-- migrate:up

-- Text that retention leaves where it is, and why. What is registered as `text` and is not kept leaves with its row's sweep.
ALTER TABLE registered_column ADD COLUMN kept_because text CHECK (kept_because IS NULL OR holds = 'text');
INSERT INTO registered_column VALUES ('registered_column', 'kept_because', 'code');
UPDATE registered_column SET kept_because = 'a tombstone keeps rewordings of what was deleted away; leaves with erase'
WHERE table_name = 'fact_vector' AND column_name = 'vector';
GRANT SELECT ON registered_column TO keepsake_queue;

-- Whose turn it is to sweep, and when a whole sweep was last done; one row.
CREATE TABLE retention_sweep (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  sweeper uuid,
  leased_until timestamptz,
  finished_at timestamptz
);
INSERT INTO retention_sweep DEFAULT VALUES;
GRANT SELECT, UPDATE ON retention_sweep TO keepsake_app;

-- Entries come when a chat is settled and go when its text goes: staging pays for neither.
CREATE INDEX chat_settled_text ON chat (state, settled_at) WHERE prompt IS NOT NULL AND settled_at IS NOT NULL;
CREATE INDEX chat_without_text ON chat (recorded_at) WHERE prompt IS NULL AND state <> 'pending';
DROP INDEX chat_recorded_at;
CREATE INDEX batch_oldest ON batch (oldest_staged_at) WHERE oldest_staged_at IS NOT NULL;
CREATE INDEX batch_leased ON batch (claimable_at) WHERE run_id IS NOT NULL;
CREATE INDEX run_with_text ON run (ended_at)
  WHERE ended_at IS NOT NULL AND (json_array_length(candidates) > 0 OR json_array_length(decisions) > 0);
CREATE INDEX fact_put_away ON fact (updated_at) WHERE state IN ('deleted', 'rejected') AND content IS NOT NULL;

-- Whose deleted text is still there: the one thing besides ids that the queue's functions learn of facts.
CREATE VIEW put_away_fact WITH (security_barrier) AS
  SELECT tenant, usr, updated_at FROM fact WHERE state IN ('deleted', 'rejected') AND content IS NOT NULL;
GRANT SELECT ON put_away_fact TO keepsake_queue;

CREATE POLICY queue_sweep ON user_token FOR DELETE TO keepsake_queue USING (true);
GRANT DELETE ON user_token, chat TO keepsake_queue;

-- The SET clause that takes the text out of a table's row: every registered text column back to its default (null, or an empty list).
CREATE FUNCTION cleared(of_table text) RETURNS text LANGUAGE sql STABLE
RETURN (SELECT string_agg(format('%I = DEFAULT', column_name), ', ' ORDER BY column_name)
        FROM registered_column WHERE table_name = of_table AND holds = 'text' AND kept_because IS NULL);

-- Chats that waited too long to be read leave pending, and their batches are counted anew. What a run is reading is left to it.
CREATE FUNCTION sweep_pending(rules due_rules, age interval, at_most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  hit record;
  gone integer;
  swept integer := 0;
BEGIN
  FOR hit IN
    SELECT b.tenant, b.usr, b.workspace FROM batch b
    WHERE b.oldest_staged_at < now() - age AND NOT (b.run_id IS NOT NULL AND b.claimable_at > now())
    ORDER BY b.oldest_staged_at LIMIT at_most
    FOR UPDATE SKIP LOCKED
  LOOP
    EXECUTE format($sql$
      UPDATE chat SET state = 'excluded', reason = 'expired', settled_at = now(), %s
      WHERE tenant = $1 AND usr = $2 AND state = 'pending' AND event_id IN (
        SELECT event_id FROM chat
        WHERE tenant = $1 AND usr = $2 AND workspace = $3 AND state = 'pending' AND staged_at < now() - $4
        ORDER BY recorded_at, src_offset LIMIT $5)
    $sql$, cleared('chat')) USING hit.tenant, hit.usr, hit.workspace, age, at_most - swept;
    GET DIAGNOSTICS gone = ROW_COUNT;
    PERFORM settle_batch(rules, hit.tenant, hit.usr, hit.workspace);
    swept := swept + gone;
    EXIT WHEN swept >= at_most;
  END LOOP;
  RETURN swept;
END $$;

-- Text of chats in one state, read or dead, that came into it so long ago.
CREATE FUNCTION sweep_chats(in_state text, age interval, at_most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE swept integer;
BEGIN
  EXECUTE format($sql$
    UPDATE chat c SET %s
    FROM (
      SELECT tenant, usr, event_id FROM chat
      WHERE prompt IS NOT NULL AND state = $1 AND settled_at < now() - $2
      ORDER BY settled_at LIMIT $3 FOR UPDATE SKIP LOCKED
    ) old
    WHERE c.tenant = old.tenant AND c.usr = old.usr AND c.event_id = old.event_id
  $sql$, cleared('chat')) USING in_state, age, at_most;
  GET DIAGNOSTICS swept = ROW_COUNT;
  RETURN swept;
END $$;

CREATE FUNCTION sweep_runs(age interval, at_most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE swept integer;
BEGIN
  EXECUTE format($sql$
    UPDATE run r SET %s
    FROM (
      SELECT tenant, usr, id FROM run
      WHERE ended_at < now() - $1 AND (json_array_length(candidates) > 0 OR json_array_length(decisions) > 0)
      ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED
    ) old
    WHERE r.tenant = old.tenant AND r.usr = old.usr AND r.id = old.id
  $sql$, cleared('run')) USING age, at_most;
  GET DIAGNOSTICS swept = ROW_COUNT;
  RETURN swept;
END $$;

-- Idempotency keys: rows of chats without text from so long before that staging refuses them as too old.
CREATE FUNCTION sweep_keys(age interval, at_most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE swept integer;
BEGIN
  DELETE FROM chat c USING (
    SELECT o.tenant, o.usr, o.event_id FROM chat o
    WHERE o.prompt IS NULL AND o.state <> 'pending' AND o.recorded_at < now() - age
    ORDER BY o.recorded_at LIMIT at_most FOR UPDATE SKIP LOCKED
  ) old
  WHERE c.tenant = old.tenant AND c.usr = old.usr AND c.event_id = old.event_id;
  GET DIAGNOSTICS swept = ROW_COUNT;
  RETURN swept;
END $$;

CREATE FUNCTION sweep_tokens(at_most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE swept integer;
BEGIN
  DELETE FROM user_token t USING (
    SELECT o.tenant, o.usr, o.id FROM user_token o WHERE o.expires_at < now() ORDER BY o.expires_at LIMIT at_most
  ) old
  WHERE t.tenant = old.tenant AND t.usr = old.usr AND t.id = old.id;
  GET DIAGNOSTICS swept = ROW_COUNT;
  RETURN swept;
END $$;

-- People with facts that were deleted or rejected so long ago and still have their text.
CREATE FUNCTION people_to_sweep(age interval, at_most integer) RETURNS TABLE (tenant text, usr text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
BEGIN ATOMIC
  SELECT DISTINCT f.tenant, f.usr
  FROM (SELECT p.tenant, p.usr FROM put_away_fact p WHERE p.updated_at < now() - age ORDER BY p.updated_at LIMIT at_most) f;
END;

-- The current person's share of it, with the caller's own rights and under the person's lock. The tombstone stays: its key and vectors.
CREATE FUNCTION sweep_facts(age interval, at_most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
  gone uuid[] := ARRAY(
    SELECT f.id FROM fact f
    WHERE f.state IN ('deleted', 'rejected') AND f.content IS NOT NULL AND f.updated_at < now() - age
    ORDER BY f.updated_at LIMIT at_most);
BEGIN
  -- Two quotes of one chat are two rows by their words alone: without them one is left.
  DELETE FROM evidence e USING evidence first
  WHERE e.fact_id = ANY (gone) AND first.fact_id = e.fact_id AND first.source_kind = e.source_kind AND first.event_id = e.event_id
    AND first.ctid < e.ctid;
  EXECUTE format('UPDATE evidence SET %s WHERE fact_id = ANY ($1)', cleared('evidence')) USING gone;
  EXECUTE format('UPDATE fact_version SET %s WHERE fact_id = ANY ($1)', cleared('fact_version')) USING gone;
  EXECUTE format('UPDATE fact SET %s WHERE id = ANY ($1)', cleared('fact')) USING gone;
  RETURN cardinality(gone);
END $$;

-- KEEPSAKE_CHAT_TEXT_DAYS=0: what a run of the current person read, and what it made of it, in the transaction that ends the run.
CREATE FUNCTION clear_run(ended uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
  EXECUTE format('UPDATE chat SET %s WHERE event_id = ANY ((SELECT event_ids FROM run WHERE id = $1)::text[]) AND run_id = $1 AND state = ''read''',
                 cleared('chat')) USING ended;
  EXECUTE format('UPDATE run SET %s WHERE id = $1', cleared('run')) USING ended;
END $$;

-- What the store's gauges show. Counts end at `at_most`; of sleeping batches beyond that, Postgres' own estimate. So the cost does not grow
-- with the batches. `due`: of tenants that learn, what claim_run would find.
CREATE FUNCTION store_figures(
  at_most integer, OUT due integer, OUT running integer, OUT sleeping integer,
  OUT oldest_due_at timestamptz, OUT oldest_pending_at timestamptz, OUT oldest_change_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
  SELECT min(d.claimable_at) INTO oldest_due_at
  FROM tenant_setting s CROSS JOIN LATERAL (
    SELECT b.claimable_at FROM batch b WHERE b.tenant = s.tenant AND b.claimable_at <= now() ORDER BY b.claimable_at LIMIT 1
  ) d
  WHERE s.personalization AND s.auto_extraction;
  SELECT count(*) INTO due FROM (
    SELECT FROM tenant_setting s CROSS JOIN LATERAL (
      SELECT FROM batch b WHERE b.tenant = s.tenant AND b.claimable_at <= now() LIMIT at_most
    ) d
    WHERE s.personalization AND s.auto_extraction LIMIT at_most
  ) n;
  SELECT count(*) INTO running FROM (SELECT FROM batch b WHERE b.run_id IS NOT NULL AND b.claimable_at > now() LIMIT at_most) n;
  SELECT count(*) INTO sleeping FROM (
    SELECT FROM tenant t CROSS JOIN LATERAL (
      SELECT FROM batch b WHERE b.tenant = t.tenant AND b.claimable_at > now() AND b.run_id IS NULL LIMIT at_most
    ) s
    LIMIT at_most
  ) n;
  IF sleeping = at_most THEN
    sleeping := greatest(at_most, (SELECT c.reltuples FROM pg_class c WHERE c.oid = 'batch_claimable'::regclass)::integer - due - running);
  END IF;
  SELECT min(b.oldest_staged_at) INTO oldest_pending_at FROM batch b WHERE b.oldest_staged_at IS NOT NULL;
  SELECT o.at INTO oldest_change_at FROM outbox o ORDER BY o.id LIMIT 1;
END $$;

GRANT CREATE ON SCHEMA public TO keepsake_queue;
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['sweep_pending', 'sweep_chats', 'sweep_runs', 'sweep_keys', 'sweep_tokens', 'people_to_sweep',
                              'store_figures'] LOOP
    EXECUTE format('ALTER FUNCTION %I OWNER TO keepsake_queue', name);
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %I FROM PUBLIC', name);
    EXECUTE format('GRANT EXECUTE ON FUNCTION %I TO keepsake_app', name);
  END LOOP;
END $$;
REVOKE CREATE ON SCHEMA public FROM keepsake_queue;

-- migrate:down
DROP FUNCTION store_figures, clear_run, sweep_facts, people_to_sweep, sweep_tokens, sweep_keys, sweep_runs, sweep_chats, sweep_pending,
  cleared;
REVOKE DELETE ON user_token, chat FROM keepsake_queue;
DROP POLICY queue_sweep ON user_token;
DROP VIEW put_away_fact;
DROP INDEX fact_put_away, run_with_text, batch_leased, batch_oldest, chat_without_text, chat_settled_text;
CREATE INDEX chat_recorded_at ON chat USING brin (recorded_at);
DROP TABLE retention_sweep;
REVOKE SELECT ON registered_column FROM keepsake_queue;
DELETE FROM registered_column WHERE table_name = 'registered_column' AND column_name = 'kept_because';
ALTER TABLE registered_column DROP COLUMN kept_because;
