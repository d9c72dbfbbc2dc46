-- How items come in.
-- Each is one round trip and, on a connection in autocommit, one transaction. :name marks a parameter; the statements
-- that run on a caller's own connection say cast(… as …), which every driver's parser understands.

-- name: now
-- The only clock that counts.
select clock_timestamp()

-- name: put
-- Inserts what is new; an item whose key is live is left alone and not returned.
insert into duly_item (planned_at, due_at, {new_item but due_at})
select coalesce(n.due_at, statement_timestamp()), coalesce(n.due_at, statement_timestamp()), {new_item but due_at of n}
  from {many new_item as n}
    on conflict (task, live_key) where live_key is not null do nothing
returning id, cast(execution_key as text), task, key

-- name: put_one
-- The same for a single item, as cheap as a bare insert.
insert into duly_item (planned_at, due_at, {new_item but due_at})
values (coalesce(cast(:due_at as timestamptz), statement_timestamp()),
        coalesce(cast(:due_at as timestamptz), statement_timestamp()), {values new_item but due_at})
    on conflict (task, live_key) where live_key is not null do nothing
returning id, cast(execution_key as text), task, key

-- name: put_one_and_tell
-- A put that wakes idle workers at its commit.
with placed as (
    insert into duly_item (planned_at, due_at, {new_item but due_at})
    values (coalesce(cast(:due_at as timestamptz), statement_timestamp()),
            coalesce(cast(:due_at as timestamptz), statement_timestamp()), {values new_item but due_at})
        on conflict (task, live_key) where live_key is not null do nothing
    returning id, cast(execution_key as text) as execution_key, task, key)
select p.id, p.execution_key, p.task, p.key, pg_notify('duly', :news) from placed p

-- name: put_each
-- The same for many rows on a caller's own connection.
insert into duly_item (planned_at, due_at, {new_item but due_at})
select coalesce(n.due_at, statement_timestamp()), coalesce(n.due_at, statement_timestamp()), {new_item but due_at of n}
  from {json new_item as n}
    on conflict (task, live_key) where live_key is not null do nothing
returning key

-- name: load_each
-- Rows of a job on a caller's own connection.
insert into duly_item (planned_at, due_at, changed_at, {new_row but due_at, changed_at})
select coalesce(n.due_at, statement_timestamp()), coalesce(n.due_at, statement_timestamp()),
       coalesce(n.changed_at, statement_timestamp()), {new_row but due_at, changed_at of n}
  from {json new_row as n}
    on conflict (task, live_key) where live_key is not null do nothing
returning row_no

-- name: load
copy duly_item (planned_at, {new_item}) from stdin

-- name: tell
select pg_notify('duly', n.news) from json_array_elements_text(cast(:news as json)) as n(news)

-- name: tell_of_ends
select pg_notify('duly_ended', '')

-- name: live
-- Who holds this key now.
select id, cast(execution_key as text), cast(args as text), planned_at
  from duly_item
 where task = :task and live_key = :key and live_key is not null

-- name: arm_find
-- Whose keys these are for good, locked in the order of ids.
select id, key, version, args, state, (state in ('waiting', 'running') and started_at is not null) as is_begun
  from duly_item
 where task = :task and key = any(:keys::text[]) and version is not null
 order by id
   for update

-- name: arm_new
-- Inserts what is new; a key that someone took meanwhile is left alone and not returned.
insert into duly_item (planned_at, due_at, {new_item but due_at})
select coalesce(n.due_at, statement_timestamp()), coalesce(n.due_at, statement_timestamp()), {new_item but due_at of n}
  from {many new_item as n}
    on conflict do nothing
returning id, key

-- name: arm_leave
-- The try that a newer version leaves behind, ended or under way, for the item's story.
insert into duly_attempt (item_id, number, fence, attempt_key, worker, started_at, ended_at, outcome)
select id, attempt, fence,
       format('%s-%s-%s', id, attempt, case when fence < 4294967296 then lpad(to_hex(fence), 8, '0') else to_hex(fence) end),
       claimed_by, started_at, coalesce(finished_at, statement_timestamp()),
       case when state = 'running' then 'superseded' else outcome end
  from duly_item
 where id = any(:ids::bigint[]) and state in ('running', 'done')
    on conflict do nothing

-- name: arm_again
-- A row begins anew. A try of it that is still under way has its result refused, for the item waits again.
update duly_item i
   set {set new_item but task, key, due_at, expires_at, owner of n},
       planned_at = coalesce(n.due_at, statement_timestamp()), due_at = coalesce(n.due_at, statement_timestamp()),
       state = 'waiting', lane = 'main', outcome = 'armed', attempt = 0, failures = 0, crashes = 0, losses = 0,
       revivals = 0, excuses = 0, cause = null, result = null, progress = null, started_at = null, finished_at = null, last_error = null,
       error_class = null, error_group = null, updated_at = statement_timestamp()
  from {many new_item with id bigint as n}
 where i.id = n.id
