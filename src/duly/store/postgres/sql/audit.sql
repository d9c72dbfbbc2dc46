-- Who did what.

-- name: note
-- The transaction gets its number before it takes an id, so that readers of the log know which lines are still to come.
insert into duly_audit (at, {note})
select n.at, {note of n}
  from {many note with at timestamptz as n}
 where pg_current_xact_id() is not null

-- name: note_each
-- The same line about each of these subjects.
insert into duly_audit (at, actor, action, subject, details)
select :now::timestamptz, :actor, :action, s.subject, :details::json
  from json_array_elements_text(:subjects::json) as s(subject)
 where pg_current_xact_id() is not null

-- name: audit_ids
-- The ids of all lines after this one, and of those that were missing before it.
select id from duly_audit where id > :after
 union all
select id
  from duly_audit
 where id <= :after and id = any(array(select value::bigint from json_array_elements_text(:gaps::json)))
 order by id
 limit :most

-- name: audit_lines
select {audit_line}
  from duly_audit
 where id = any(array(select value::bigint from json_array_elements_text(:ids::json)))
   and (:actor::text is null or actor = :actor::text)
 order by id

-- name: audit_horizon
-- The number of the oldest transaction under way, and that of the next to come.
select pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint from pg_current_snapshot() s

-- name: forget_notes
-- The next portion of the audit log that is old enough, but for what another worker is about to forget.
delete from duly_audit
 where id = any(array(select id from duly_audit order by id limit :most for update skip locked)) and at < :before
