-- The schema itself.

-- name: schema_version
select coalesce(max(version), 0) from duly_migration

-- name: least_migration
-- The one that a worker has to know at least.
select coalesce(max(migration), 0) from duly_least

-- name: app_versions
-- Of the tables of plug-ins.
select app, max(version) from duly_app_migration group by app
