-- Who did what.

-- name: audit
select {audit_line}
  from duly_audit
 where {given subject} and (:before::bigint is null or id < :before::bigint)
 order by id desc
 limit :most

-- name: audit_last
select coalesce(max(id), 0) from duly_audit

-- name: oldest_note
-- The earliest time among the first lines. Ids are in the order of time, but for what clocks do.
select min(at) as at from (select at from duly_audit order by id limit :most) f
