-- The few acts across people, each a function of keepsake_queue: stage_chats, reset_chats, delete_chats, claim_run, take_outbox,
-- drop_outbox; and add_barrier, exclude_barred, which keep the hash of a person to themselves.
-- Lock order everywhere: person, batch, chats and facts. Rows are sorted before they are locked or inserted, so that two stagers with
-- the same events in different order wait for each other instead of dead-locking.

-- migrate:up

-- memory-store's thresholds, handed over with each call: the settings live there. max_wait null: never; round_to null: not at all.
CREATE TYPE due_rules AS (
  min_chats integer,
  idle interval,
  window_chats integer,
  max_wait interval,
  round_to interval
);

CREATE FUNCTION round_up(step interval, moment timestamptz) RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN step IS NULL THEN moment ELSE date_bin(step, moment + step - interval '1 microsecond', 'epoch'::timestamptz) END;

-- When a batch that no run holds is to be claimed; null: not before another chat comes. The one place that says what "due" means.
-- failed_at: chats of a window that was due and failed are left; they stay due, however few they have become.
CREATE FUNCTION due_at(rules due_rules, pending integer, oldest_staged_at timestamptz, last_staged_at timestamptz,
                       asked_at timestamptz, failed_at timestamptz, not_before timestamptz)
RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
  WHEN pending = 0 THEN NULL
  WHEN asked_at IS NOT NULL OR failed_at IS NOT NULL THEN greatest(coalesce(asked_at, oldest_staged_at), not_before)
  WHEN pending < least((rules).min_chats, (rules).window_chats) AND (rules).max_wait IS NULL THEN NULL
  ELSE greatest(not_before, round_up((rules).round_to, CASE
    WHEN pending >= (rules).window_chats THEN last_staged_at
    WHEN pending >= (rules).min_chats THEN last_staged_at + (rules).idle
    ELSE greatest(oldest_staged_at + (rules).max_wait, last_staged_at + (rules).idle)
  END))
END;

-- What run a window of this workspace is given: the first of these that the operator (still) has. Null: the offline extractor.
CREATE FUNCTION resolve_model(models text[], chat_model text, agent_model text, tenant_model text)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN chat_model = ANY (models) THEN chat_model
  WHEN agent_model = ANY (models) THEN agent_model
  WHEN tenant_model = ANY (models) THEN tenant_model
  ELSE models[1]
END;

-- Counts a batch's pending chats anew, after some were read, excluded, given up or made pending again. The caller holds its row.
CREATE FUNCTION settle_batch(rules due_rules, for_tenant text, for_usr text, for_workspace text)
RETURNS void LANGUAGE sql VOLATILE
BEGIN ATOMIC
  UPDATE batch b SET
    pending = now_pending.chats,
    oldest_staged_at = now_pending.oldest,
    asked_at = now_pending.asked,
    -- A leased batch keeps the end of its lease.
    claimable_at = CASE
      WHEN b.run_id IS NOT NULL THEN b.claimable_at
      ELSE due_at(rules, now_pending.chats, now_pending.oldest, b.last_staged_at, now_pending.asked,
                  CASE WHEN now_pending.of_failed_window THEN b.failed_at END, b.not_before)
    END,
    attempts = CASE WHEN now_pending.of_failed_window THEN b.attempts ELSE 0 END,
    failed_at = CASE WHEN now_pending.of_failed_window THEN b.failed_at END,
    failed_offset = CASE WHEN now_pending.of_failed_window THEN b.failed_offset END
  FROM (
    SELECT
      count(c.event_id)::integer AS chats,
      min(c.staged_at) AS oldest,
      CASE WHEN min(c.staged_at) <= k.asked_at THEN k.asked_at END AS asked,
      coalesce(bool_or((c.recorded_at, c.src_offset) <= (k.failed_at, k.failed_offset)), false) AS of_failed_window
    FROM batch k LEFT JOIN chat c
      ON c.tenant = k.tenant AND c.usr = k.usr AND c.workspace = k.workspace AND c.state = 'pending'
    WHERE k.tenant = for_tenant AND k.usr = for_usr AND k.workspace = for_workspace
    GROUP BY k.tenant, k.usr, k.workspace
  ) now_pending
  WHERE b.tenant = for_tenant AND b.usr = for_usr AND b.workspace = for_workspace;
END;

-- Staging: chat.completed. One element per record, all arrays equally long; answers only the records that were not staged, by their
-- ordinal from 1. `digests` and `repeats` come unkeyed. Batches of duplicates are not touched, so that a replay postpones nothing.
CREATE FUNCTION stage_chats(
  rules due_rules,
  tenants text[], users text[], workspaces text[], event_ids text[], threads text[], prompts text[], responses text[],
  occurred_ats timestamptz[], occurred_offsets smallint[], timezones text[], digests bytea[], repeats bytea[],
  recorded_ats timestamptz[], partitions integer[], offsets bigint[], traceparents text[])
RETURNS TABLE (ord bigint, status text, reason text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET work_mem = '64MB'
AS $$
#variable_conflict use_column
DECLARE
  refused bigint[];
  reasons text[];
  tried bigint;
  staged bigint;
BEGIN
  WITH input AS MATERIALIZED (
    SELECT i.*, t.hash_key,
      CASE
        WHEN s.tenant IS NULL THEN 'unknown_tenant'
        WHEN NOT (s.personalization AND s.auto_extraction) THEN 'off'
        WHEN NOT u.learning THEN 'opted_out'
        ELSE b.kind
      END AS why
    FROM unnest(tenants, users, workspaces, event_ids, threads, prompts, responses, occurred_ats, occurred_offsets, timezones,
                digests, repeats, recorded_ats, partitions, offsets, traceparents) WITH ORDINALITY
      AS i (tenant, usr, workspace, event_id, thread, prompt, response, occurred_at, occurred_offset, timezone,
            digest, repeat, recorded_at, src_partition, src_offset, traceparent, ord)
    LEFT JOIN tenant t ON t.tenant = i.tenant
    LEFT JOIN tenant_setting s ON s.tenant = i.tenant
    LEFT JOIN user_setting u ON u.tenant = i.tenant AND u.usr = i.usr
    LEFT JOIN LATERAL (
      SELECT b.kind FROM barrier b
      WHERE b.tenant = i.tenant AND b.usr_key IN (keyed_hash(t.hash_key, i.usr), ''::bytea)
        AND (b.workspace IS NULL OR b.workspace = i.workspace) AND (b.thread IS NULL OR b.thread = i.thread)
        AND i.recorded_at >= b.since AND (i.recorded_at, i.src_offset) < (b.until, b.until_offset)
      LIMIT 1
    ) b ON true
  ), fresh AS (
    INSERT INTO chat (tenant, usr, event_id, workspace, thread, prompt, response, occurred_at, occurred_offset, timezone,
                      recorded_at, src_offset, src_partition, digest, repeat_key, traceparent)
    SELECT tenant, usr, event_id, workspace, thread, prompt, response, occurred_at, occurred_offset, timezone,
           recorded_at, src_offset, src_partition,
           substring(sha256(hash_key || digest) FOR 16), substring(sha256(hash_key || repeat) FOR 16), traceparent
    FROM input WHERE why IS NULL
    ORDER BY tenant, usr, event_id, recorded_at, src_offset
    ON CONFLICT DO NOTHING
    RETURNING tenant, usr, workspace, timezone, recorded_at
  ), grown AS (
    INSERT INTO batch AS b (tenant, usr, workspace, pending, oldest_staged_at, last_staged_at, claimable_at, timezone)
    SELECT tenant, usr, workspace, count(*), now(), now(), due_at(rules, count(*)::integer, now(), now(), NULL, NULL, NULL),
           (array_agg(timezone ORDER BY recorded_at DESC) FILTER (WHERE timezone IS NOT NULL))[1]
    FROM fresh GROUP BY tenant, usr, workspace ORDER BY tenant, usr, workspace
    ON CONFLICT (tenant, usr, workspace) DO UPDATE SET
      pending = b.pending + excluded.pending,
      oldest_staged_at = coalesce(b.oldest_staged_at, excluded.oldest_staged_at),
      last_staged_at = excluded.last_staged_at,
      timezone = coalesce(excluded.timezone, b.timezone),
      claimable_at = CASE
        WHEN b.run_id IS NOT NULL THEN b.claimable_at
        -- Full and due already: who goes on talking does not lose the place in the queue.
        WHEN b.pending >= rules.window_chats AND b.claimable_at <= now() THEN b.claimable_at
        ELSE due_at(rules, b.pending + excluded.pending, coalesce(b.oldest_staged_at, excluded.oldest_staged_at),
                    excluded.last_staged_at, b.asked_at, b.failed_at, b.not_before)
      END
  )
  SELECT array_agg(i.ord) FILTER (WHERE i.why IS NOT NULL), array_agg(i.why) FILTER (WHERE i.why IS NOT NULL),
         count(*) FILTER (WHERE i.why IS NULL), (SELECT count(*) FROM fresh)
  INTO refused, reasons, tried, staged
  FROM input i;

  RETURN QUERY
    SELECT r.ord, CASE WHEN r.why = 'unknown_tenant' THEN 'rejected' ELSE 'dropped' END, r.why
    FROM unnest(refused, reasons) AS r (ord, why);

  IF staged < tried THEN
    -- In a statement of its own, to see also what another stager committed while the insert waited for it.
    RETURN QUERY
      SELECT i.ord,
        CASE WHEN c.event_id IS NULL OR c.state = 'deleted' THEN 'dropped' WHEN c.digest = i.keyed THEN 'duplicate' ELSE 'rejected' END,
        CASE WHEN c.event_id IS NULL THEN 'repeat' WHEN c.state = 'deleted' THEN 'deleted' WHEN c.digest = i.keyed THEN NULL
             ELSE 'event_id_conflict' END
      FROM (
        SELECT u.*, substring(sha256(t.hash_key || u.digest) FOR 16) AS keyed
        FROM unnest(tenants, users, event_ids, digests, recorded_ats, partitions, offsets) WITH ORDINALITY
          AS u (tenant, usr, event_id, digest, recorded_at, src_partition, src_offset, ord)
        JOIN tenant t ON t.tenant = u.tenant
        WHERE refused IS NULL OR NOT u.ord = ANY (refused)
      ) i
      LEFT JOIN chat c ON c.tenant = i.tenant AND c.usr = i.usr AND c.event_id = i.event_id
      -- What this very call inserted: now() is the transaction's time.
      WHERE c.event_id IS NULL
         OR (c.staged_at, c.recorded_at, c.src_partition, c.src_offset, c.state)
            IS DISTINCT FROM (now(), i.recorded_at, i.src_partition, i.src_offset, 'pending');
  END IF;
END $$;

-- Staging: chat.reset of tenants that are known. A barrier at each event's own position, and what is pending before it is excluded, also
-- when a run holds it.
CREATE FUNCTION reset_chats(rules due_rules, tenants text[], users text[], workspaces text[], threads text[],
                            recorded_ats timestamptz[], offsets bigint[])
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE hit record;
BEGIN
  -- One row per barrier, the furthest: an upsert cannot touch a row twice.
  INSERT INTO barrier AS b (tenant, usr_key, workspace, thread, kind, until, until_offset)
  SELECT DISTINCT ON (i.tenant, k.usr_key, i.workspace, i.thread)
    i.tenant, k.usr_key, i.workspace, i.thread, 'reset', i.recorded_at, i.src_offset
  FROM unnest(tenants, users, workspaces, threads, recorded_ats, offsets) AS i (tenant, usr, workspace, thread, recorded_at, src_offset)
  JOIN tenant t ON t.tenant = i.tenant
  CROSS JOIN LATERAL (SELECT keyed_hash(t.hash_key, i.usr) AS usr_key) k
  ORDER BY i.tenant, k.usr_key, i.workspace, i.thread, i.recorded_at DESC, i.src_offset DESC
  ON CONFLICT (tenant, usr_key, workspace, thread, kind, since) DO UPDATE SET until = excluded.until, until_offset = excluded.until_offset
  WHERE (b.until, b.until_offset) < (excluded.until, excluded.until_offset);

  FOR hit IN
    SELECT b.tenant, b.usr, b.workspace FROM batch b
    WHERE (b.tenant, b.usr, b.workspace) IN (SELECT * FROM unnest(tenants, users, workspaces))
    ORDER BY b.tenant, b.usr, b.workspace FOR UPDATE
  LOOP
    UPDATE chat c SET state = 'excluded', reason = 'reset', prompt = NULL, response = NULL, settled_at = now()
    FROM unnest(tenants, users, workspaces, threads, recorded_ats, offsets) AS i (tenant, usr, workspace, thread, recorded_at, src_offset)
    WHERE c.tenant = hit.tenant AND c.usr = hit.usr AND c.workspace = hit.workspace AND c.state = 'pending'
      AND i.tenant = c.tenant AND i.usr = c.usr AND i.workspace = c.workspace AND (i.thread IS NULL OR i.thread = c.thread)
      AND (c.recorded_at, c.src_offset) < (i.recorded_at, i.src_offset);
    IF FOUND THEN
      PERFORM settle_batch(rules, hit.tenant, hit.usr, hit.workspace);
    END IF;
  END LOOP;
END $$;

-- Staging: chat.deleted of tenants that are known, one element per chat that is taken back. Each leaves a row without text, so that a
-- chat that comes later finds it and is dropped. What it gave as evidence is the caller's to remove: this function cannot reach facts.
CREATE FUNCTION delete_chats(rules due_rules, tenants text[], users text[], workspaces text[], event_ids text[],
                             recorded_ats timestamptz[], partitions integer[], offsets bigint[])
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE hit record;
BEGIN
  PERFORM FROM batch b WHERE (b.tenant, b.usr) IN (SELECT * FROM unnest(tenants, users))
  ORDER BY b.tenant, b.usr, b.workspace FOR UPDATE;

  FOR hit IN
    WITH gone AS (
      INSERT INTO chat AS c (tenant, usr, event_id, workspace, state, occurred_at, recorded_at, src_offset, src_partition, settled_at)
      SELECT DISTINCT ON (tenant, usr, event_id) tenant, usr, event_id, workspace, 'deleted', recorded_at, recorded_at, src_offset,
             src_partition, now()
      FROM unnest(tenants, users, workspaces, event_ids, recorded_ats, partitions, offsets)
        AS i (tenant, usr, workspace, event_id, recorded_at, src_partition, src_offset)
      ORDER BY tenant, usr, event_id
      -- repeat_key stays: the same chat under another id is not to come back either.
      ON CONFLICT (tenant, usr, event_id) DO UPDATE
        SET state = 'deleted', prompt = NULL, response = NULL, digest = NULL, reason = NULL, settled_at = now()
        WHERE c.state <> 'deleted'
      RETURNING tenant, usr, workspace
    )
    SELECT DISTINCT tenant, usr, workspace FROM gone ORDER BY tenant, usr, workspace
  LOOP
    PERFORM settle_batch(rules, hit.tenant, hit.usr, hit.workspace);
  END LOOP;
END $$;

-- Closes [since, (until, until_offset)) to reading for the current person, or for the whole current tenant where no person is set.
-- Safe to repeat; a barrier never moves back.
CREATE FUNCTION add_barrier(of_kind text, of_workspace text, of_thread text, from_time timestamptz, to_time timestamptz, to_offset bigint)
RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
BEGIN ATOMIC
  INSERT INTO barrier AS b (tenant, usr_key, workspace, thread, kind, since, until, until_offset)
  SELECT t.tenant, coalesce(keyed_hash(t.hash_key, current_person()), ''::bytea), of_workspace, of_thread, of_kind,
         coalesce(from_time, '-infinity'), to_time, to_offset
  FROM tenant t WHERE t.tenant = current_tenant()
  ON CONFLICT (tenant, usr_key, workspace, thread, kind, since) DO UPDATE SET until = excluded.until, until_offset = excluded.until_offset
  WHERE (b.until, b.until_offset) < (excluded.until, excluded.until_offset);
END;

-- Excludes the current person's pending chats that stand behind a barrier: in one workspace, or in all (null).
CREATE FUNCTION exclude_barred(rules due_rules, in_workspace text)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  person bytea;
  hit record;
BEGIN
  SELECT keyed_hash(t.hash_key, current_person()) INTO person FROM tenant t WHERE t.tenant = current_tenant();
  IF person IS NULL OR NOT EXISTS (SELECT FROM barrier b WHERE b.tenant = current_tenant() AND b.usr_key IN (person, ''::bytea)) THEN
    RETURN;
  END IF;
  FOR hit IN
    SELECT b.workspace FROM batch b
    WHERE b.tenant = current_tenant() AND b.usr = current_person() AND (in_workspace IS NULL OR b.workspace = in_workspace)
    ORDER BY b.workspace FOR UPDATE
  LOOP
    UPDATE chat c SET state = 'excluded', reason = b.kind, prompt = NULL, response = NULL, settled_at = now()
    FROM barrier b
    WHERE c.tenant = current_tenant() AND c.usr = current_person() AND c.workspace = hit.workspace AND c.state = 'pending'
      AND b.tenant = c.tenant AND b.usr_key IN (person, ''::bytea)
      AND (b.workspace IS NULL OR b.workspace = c.workspace) AND (b.thread IS NULL OR b.thread = c.thread)
      AND c.recorded_at >= b.since AND (c.recorded_at, c.src_offset) < (b.until, b.until_offset);
    IF FOUND THEN
      PERFORM settle_batch(rules, current_tenant(), current_person(), hit.workspace);
    END IF;
  END LOOP;
END $$;

-- Leases the batch that is due longest, of a tenant picked at random, so that no tenant waits behind another's backlog; and opens a run
-- over its oldest chats. `verdict`: claimed (also when this run id holds it already), ended (the run is over), none. The transaction
-- goes on as the claimed person.
CREATE FUNCTION claim_run(
  rules due_rules, wanted uuid, by_worker text, lease interval, models text[], without text[], only_model text, max_lost integer,
  OUT verdict text, OUT tenant text, OUT usr text, OUT workspace text, OUT event_ids text[], OUT attempt integer, OUT model text,
  OUT lease_expires_at timestamptz, OUT lost_runs integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  own record;
  picked record;
  died boolean;
BEGIN
  lost_runs := 0;
  -- The same run id asked for twice at once, as by a client that did not wait: one after the other.
  PERFORM pg_advisory_xact_lock(hashtextextended('claim_run' || wanted::text, 0));
  SELECT r.tenant, r.usr, r.workspace, r.event_ids, r.attempt, r.model, r.state, b.claimable_at, b.run_id
  INTO picked
  FROM run r JOIN batch b ON b.tenant = r.tenant AND b.usr = r.usr AND b.workspace = r.workspace WHERE r.id = wanted;
  IF FOUND THEN
    IF picked.state <> 'running' OR picked.run_id IS DISTINCT FROM wanted THEN
      verdict := 'ended';
      RETURN;
    END IF;
    PERFORM set_config('keepsake.tenant', picked.tenant, true), set_config('keepsake.user', picked.usr, true);
    verdict := 'claimed'; tenant := picked.tenant; usr := picked.usr; workspace := picked.workspace; event_ids := picked.event_ids;
    attempt := picked.attempt; model := picked.model; lease_expires_at := picked.claimable_at;
    RETURN;
  END IF;

  <<tenants>>
  FOR own IN
    SELECT s.tenant, s.model FROM tenant_setting s WHERE s.personalization AND s.auto_extraction ORDER BY random()
  LOOP
    -- A tenant whose only model is out is passed over whole, however much of it is due.
    CONTINUE WHEN (resolve_model(models, NULL, NULL, own.model) = ANY (without)
                   OR resolve_model(models, NULL, NULL, own.model) IS DISTINCT FROM coalesce(only_model, resolve_model(models, NULL, NULL, own.model)))
      AND NOT EXISTS (SELECT FROM workspace_setting w
                      WHERE w.tenant = own.tenant AND (w.chat_model IS NOT NULL OR w.agent_model IS NOT NULL));
    LOOP
      SELECT b.*, m.model AS resolved INTO picked
      FROM batch b
      LEFT JOIN workspace_setting w ON w.tenant = b.tenant AND w.workspace = b.workspace
      CROSS JOIN LATERAL (SELECT resolve_model(models, w.chat_model, w.agent_model, own.model) AS model) m
      WHERE b.tenant = own.tenant AND b.claimable_at <= now()
        AND (m.model IS NULL OR m.model <> ALL (without)) AND (only_model IS NULL OR m.model = only_model)
      ORDER BY b.claimable_at LIMIT 1
      FOR UPDATE OF b SKIP LOCKED;
      EXIT WHEN NOT FOUND;

      died := false;
      IF picked.run_id IS NOT NULL THEN
        UPDATE run r SET state = 'lost', outcome = 'worker_lost', ended_at = now()
        WHERE r.tenant = picked.tenant AND r.usr = picked.usr AND r.id = picked.run_id AND r.state = 'running';
        lost_runs := lost_runs + 1;
        picked.lost := picked.lost + 1;
        died := picked.lost >= max_lost;
        IF died THEN
          UPDATE chat c SET state = 'dead', reason = 'worker_lost', run_id = picked.run_id, settled_at = now()
          FROM run r
          WHERE r.tenant = picked.tenant AND r.usr = picked.usr AND r.id = picked.run_id
            AND c.tenant = r.tenant AND c.usr = r.usr AND c.event_id = ANY (r.event_ids) AND c.state = 'pending';
          picked.lost := 0;
        END IF;
        UPDATE batch b SET run_id = NULL, lost = picked.lost
        WHERE b.tenant = picked.tenant AND b.usr = picked.usr AND b.workspace = picked.workspace;
      END IF;

      PERFORM set_config('keepsake.tenant', picked.tenant, true), set_config('keepsake.user', picked.usr, true);
      PERFORM exclude_barred(rules, picked.workspace);
      SELECT array_agg(c.event_id ORDER BY c.recorded_at, c.src_offset) INTO event_ids
      FROM (
        SELECT c.event_id, c.recorded_at, c.src_offset FROM chat c
        WHERE c.tenant = picked.tenant AND c.usr = picked.usr AND c.workspace = picked.workspace AND c.state = 'pending'
        ORDER BY c.recorded_at, c.src_offset
        LIMIT greatest(1, rules.window_chats >> least(picked.attempts, 30))
      ) c;
      IF died OR event_ids IS NULL THEN
        -- What is left may not be due any more.
        PERFORM settle_batch(rules, picked.tenant, picked.usr, picked.workspace);
        CONTINUE;
      END IF;

      lease_expires_at := now() + lease;
      INSERT INTO run (tenant, usr, id, workspace, event_ids, worker, attempt, model)
      VALUES (picked.tenant, picked.usr, wanted, picked.workspace, event_ids, by_worker, picked.attempts + 1, picked.resolved);
      UPDATE batch b SET run_id = wanted, claimable_at = lease_expires_at
      WHERE b.tenant = picked.tenant AND b.usr = picked.usr AND b.workspace = picked.workspace;
      verdict := 'claimed'; tenant := picked.tenant; usr := picked.usr; workspace := picked.workspace;
      attempt := picked.attempts + 1; model := picked.resolved;
      EXIT tenants;
    END LOOP;
  END LOOP;
  verdict := coalesce(verdict, 'none');
END $$;

-- The outbox's oldest rows, for one relay at a time until its transaction ends; nothing for the others. By age, not from the last id on: a
-- transaction that commits late has an earlier id.
CREATE FUNCTION take_outbox(at_most integer)
RETURNS TABLE (id bigint, change_id uuid, at timestamptz, type text, tenant text, usr text, workspace text, fact_id uuid,
               version integer, traceparent text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
BEGIN
  IF pg_try_advisory_xact_lock(hashtextextended('keepsake outbox', 0)) THEN
    RETURN QUERY SELECT o.id, o.change_id, o.at, o.type, o.tenant, o.usr, o.workspace, o.fact_id, o.version, o.traceparent
    FROM outbox o ORDER BY o.id LIMIT at_most;
  END IF;
END $$;

CREATE FUNCTION drop_outbox(published bigint[]) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
BEGIN ATOMIC
  DELETE FROM outbox WHERE id = ANY (published);
END;

GRANT CREATE ON SCHEMA public TO keepsake_queue;
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['stage_chats', 'reset_chats', 'delete_chats', 'add_barrier', 'exclude_barred', 'claim_run', 'take_outbox',
                              'drop_outbox'] LOOP
    EXECUTE format('ALTER FUNCTION %I OWNER TO keepsake_queue', name);
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %I FROM PUBLIC', name);
    EXECUTE format('GRANT EXECUTE ON FUNCTION %I TO keepsake_app', name);
  END LOOP;
END $$;
REVOKE CREATE ON SCHEMA public FROM keepsake_queue;

-- migrate:down
DROP FUNCTION drop_outbox, take_outbox, claim_run, exclude_barred, add_barrier, delete_chats, reset_chats, stage_chats, settle_batch,
  resolve_model, due_at, round_up;
DROP TYPE due_rules;
