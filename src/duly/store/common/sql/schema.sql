-- The schema itself.

-- name: schema_version
select coalesce(max(version), 0) from duly_migration
