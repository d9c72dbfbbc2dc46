-- Puts of very many items: rows are set aside in portions, decided by one statement, and made items in portions.

-- name: begin_load
insert into duly_load (token, created_at) values (:token, :now) returning id

-- name: set_aside
-- Nothing when the load was removed.
insert into duly_load_part (load_id, number, rows)
select :id, :number, :rows
 where exists (select 1 from duly_load where id = :id)
returning number

-- name: reserve
-- A key that is of this load from now on; nothing when it is of one already.
insert into duly_load_key (task, key, load_id, number, digest, planned_at)
values (:task, :key, :id, :number, :digest, :at)
    on conflict do nothing
returning load_id

-- name: reserved
-- The load that has this key, with what it puts under it.
select load_id, digest, planned_at from duly_load_key where task = :task and key = :key

-- name: decide_load
-- All of its rows are put from now on; nothing when some of them were removed.
update duly_load
   set decided_at = :now
 where id = :id
   and decided_at is null
   and (select count(*) from duly_load_part where load_id = :id) = :parts
returning id

-- name: next_part
select p.number, p.rows, l.decided_at as decided
  from duly_load_part p
  join duly_load l on l.id = p.load_id
 where p.load_id = :id
 order by p.number
 limit 1

-- name: remove_part
delete from duly_load_part where load_id = :id and number = :number

-- name: free_keys
delete from duly_load_key where load_id = :id and number = :number

-- name: end_load
delete from duly_load where id = :id

-- name: loads
select id, token from duly_load order by id

-- name: put_refused
-- An item of a load that was decided, whose key another live item has: a person decides.
insert into duly_item (planned_at, {new_item}, state, outcome, finished_at, last_error, error_class)
values (:due_at, {values new_item}, 'failed', 'gave_up', :now, :error, 'duly.KeyConflict')
