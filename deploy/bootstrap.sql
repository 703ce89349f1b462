-- What a superuser does once per database, before the first `python -m deploy migrate`. Safe to run again.
--
--   psql -v database=keepsake -v owner_password=… -f deploy/bootstrap.sql
--
-- keepsake_owner owns the database and runs its migrations. They make the other two roles, which is why it may create roles:
-- keepsake_app, as which memory-store logs in, and keepsake_queue, which nobody logs in as.
\set ON_ERROR_STOP on

SELECT 'CREATE ROLE keepsake_owner'
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'keepsake_owner') \gexec

ALTER ROLE keepsake_owner LOGIN CREATEROLE NOSUPERUSER NOBYPASSRLS PASSWORD :'owner_password';

SELECT format('CREATE DATABASE %I OWNER keepsake_owner ENCODING ''UTF8'' TEMPLATE template0', :'database')
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'database') \gexec
