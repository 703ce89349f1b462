-- What a prompt may hold, in one statement: the read that every assembled prompt waits for.

-- migrate:up

-- The caller's own rights: row-level security holds in here as everywhere. Setting the person inside saves the round trips of a
-- transaction around it; the settings end with the statement. One row at least for a tenant that is known: `heading` and `withheld` stand
-- in each, a row without fact_id is no fact. `with_vectors`: also the vectors of `of_encoder` that belong to the current version.
CREATE FUNCTION injectable_facts(for_tenant text, for_usr text, for_workspace text, of_encoder text, with_vectors boolean)
RETURNS TABLE (heading text, withheld text, fact_id uuid, version integer, content text, scope text, created_at timestamptz,
               newest_at timestamptz, use_count bigint, vector bytea)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
BEGIN
  PERFORM set_config('keepsake.tenant', for_tenant, true), set_config('keepsake.user', for_usr, true);
  RETURN QUERY
  SELECT s.heading, s.withheld, f.id, f.version, f.content, CASE WHEN f.workspace IS NULL THEN 'global' ELSE 'workspace' END,
         f.created_at, greatest(f.updated_at, f.last_confirmed_at), coalesce(u.use_count, 0), v.vector
  FROM (
    SELECT t.heading,
      CASE WHEN NOT t.personalization THEN 'personalization_off' WHEN NOT p.memory THEN 'opted_out' END AS withheld
    FROM tenant_setting t LEFT JOIN user_setting p ON p.tenant = t.tenant
  ) s
  LEFT JOIN fact f ON s.withheld IS NULL AND f.state = 'active' AND (f.workspace IS NULL OR f.workspace = for_workspace)
    AND (f.valid_to_day IS NULL OR f.valid_to_day >= (now() AT TIME ZONE 'UTC')::date)
  LEFT JOIN fact_use u ON u.tenant = f.tenant AND u.usr = f.usr AND u.fact_id = f.id
  LEFT JOIN fact_vector v ON with_vectors AND v.tenant = f.tenant AND v.usr = f.usr AND v.fact_id = f.id AND v.encoder = of_encoder
    AND v.version = f.version
  ORDER BY f.created_at, f.id;
END $$;
REVOKE EXECUTE ON FUNCTION injectable_facts FROM PUBLIC;
GRANT EXECUTE ON FUNCTION injectable_facts TO keepsake_app;

-- migrate:down
DROP FUNCTION injectable_facts;
