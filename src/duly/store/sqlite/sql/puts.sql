-- How items come in.
-- Writers hold BEGIN IMMEDIATE, so what PostgreSQL says in one statement may be several here. Times are microseconds.

-- name: put_one
-- Inserts what is new; an item whose key is live, or reserved by a put of very many items, is left alone and not
-- returned.
insert into duly_item (planned_at, {new_item})
select :due_at, {values new_item}
 where :key is null or not exists (select 1 from duly_load_key r where r.task = :task and r.key = :key)
    on conflict (task, key) where key is not null and state in ('waiting', 'running') do nothing
returning id, execution_key, task, key

-- name: put_each
-- The same for many rows on a caller's own connection.
insert into duly_item (planned_at, {new_item})
select n.due_at, {new_item of n}
  from {json new_item as n}
 where n.key is null or not exists (select 1 from duly_load_key r where r.task = n.task and r.key = n.key)
    on conflict (task, key) where key is not null and state in ('waiting', 'running') do nothing
returning key

-- name: load_each
-- Rows of a job on a caller's own connection.
insert into duly_item (planned_at, {new_row})
select n.due_at, {new_row of n}
  from {json new_row as n}
 where n.key is null or not exists (select 1 from duly_load_key r where r.task = n.task and r.key = n.key)
    on conflict (task, key) where key is not null and state in ('waiting', 'running') do nothing
returning row_no

-- name: load
insert into duly_item ({new_item}, planned_at) values ({places new_item}, ?)

-- name: live
-- Who holds this key now.
select id, execution_key, cast(args as text), planned_at
  from duly_item
 where task = :task and key = :key and key is not null and state in ('waiting', 'running')

-- name: arm_find
-- Whose keys these are for good.
select id, key, version, args, state, (state in ('waiting', 'running') and started_at is not null) as is_begun
  from duly_item
 where task = :task and key in (select value from json_each(:keys)) and version is not null

-- name: arm_new
insert into duly_item (planned_at, {new_item})
values (:due_at, {values new_item})
    on conflict do nothing
returning id, key

-- name: arm_leave
-- The try that a newer version leaves behind, ended or under way, for the item's story.
insert into duly_attempt (item_id, number, fence, attempt_key, worker, started_at, ended_at, outcome)
select id, attempt, fence, printf('%d-%d-%08x', id, attempt, fence), claimed_by, started_at,
       coalesce(finished_at, :now), case when state = 'running' then 'superseded' else outcome end
  from duly_item
 where id in (select value from json_each(:ids)) and state in ('running', 'done')
    on conflict do nothing

-- name: arm_again
-- A row begins anew. A try of it that is still under way has its result refused, for the item waits again.
update duly_item
   set {set new_item but task, key, expires_at, owner}, planned_at = :due_at,
       state = 'waiting', lane = 'main', outcome = 'armed', attempt = 0, failures = 0, crashes = 0, losses = 0,
       revivals = 0, excuses = 0, cause = null, result = null, progress = null, started_at = null, finished_at = null, last_error = null,
       error_class = null, error_group = null, updated_at = :now
 where id = :id
