-- The schema itself.

-- name: schema_version
select coalesce(max(version), 0) from duly_migration

-- name: app_versions
-- Of the tables of plug-ins.
select app, max(version) from duly_app_migration group by app
