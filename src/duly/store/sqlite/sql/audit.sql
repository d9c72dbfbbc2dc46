-- Who did what.

-- name: note
insert into duly_audit (at, {note}) values (:at, {values note})

-- name: note_each
-- The same line about each of these subjects.
insert into duly_audit (at, actor, action, subject, details)
select :now, :actor, :action, value, :details from json_each(:subjects)

-- name: audit_ids
-- The ids of all lines after this one, and of those that were missing before it.
select id from duly_audit where id > :after
 union all
select id from duly_audit where id <= :after and id in (select value from json_each(:gaps))
 order by id
 limit :most

-- name: audit_lines
select {audit_line}
  from duly_audit
 where id in (select value from json_each(:ids))
   and (:actor is null or actor = :actor)
 order by id

-- name: audit_horizon
-- Writers take turns: a transaction ends before the next one takes an id.
select 1, 1

-- name: forget_notes
-- The next portion of the audit log that is old enough.
delete from duly_audit
 where id in (select id from duly_audit order by id limit :most) and at < :before
