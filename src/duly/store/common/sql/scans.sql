-- Files that scans found.

-- name: take_scanned
-- Nothing is returned when this version became a job before; one that was refused may be taken after all.
insert into duly_scanned (source, version, name, created_at)
values (:source, :version, :name, :now)
    on conflict (source, version) do update set reason = null where duly_scanned.job_id is null
returning source

-- name: scanned_became
update duly_scanned set job_id = :job_id where source = :source and version = :version

-- name: refuse_scanned
insert into duly_scanned (source, version, name, reason, created_at)
values (:source, :version, :name, :reason, :now)
    on conflict (source, version) do update set reason = excluded.reason where duly_scanned.job_id is null

-- name: forget_refusals
delete from duly_scanned where job_id is null
