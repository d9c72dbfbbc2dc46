-- Recurrences: they join, are revised, make items and move on.

-- name: enroll
insert into duly_schedule ({new_schedule}) values ({values new_schedule})
    on conflict (task, key) do nothing
returning id

-- name: taken
select id from duly_schedule where task = :task and key = :key

-- name: seats
select slot, members from duly_slot where ring = :ring

-- name: due_schedules
select {schedule}
  from duly_schedule
 where next_at between :since and :now and id not in (select value from json_each(:seen))
 order by next_at, id
 limit :most

-- name: some_schedules
select {schedule}
  from duly_schedule
 where id in (select value from json_each(:ids))
 order by id

-- name: occur
-- Makes an item of an occurrence.
insert into duly_item (task, queue, args, planned_at, due_at, rank, schedule_id, streak, fingerprint, expires_at, owner)
select task, queue, args, :at, :at, rank, id, failures, fingerprint, :at + cast(round(max_lateness * 1000000) as integer),
       owner
  from duly_schedule
 where id = :id
    on conflict (schedule_id, planned_at) where schedule_id is not null do nothing
returning id

-- name: move_on
update duly_schedule
   set next_at = :next_at, last_at = :last_at, skipped = :skipped, last_item = coalesce(:last_item, last_item)
 where id = :id

-- name: revise
-- What others write is left to them, and whose it is stays.
update duly_schedule
   set {set schedule but id, task, key, ring, last_item, last_success_at, last_error, unchanged, created_at, owner}
 where id = :id

-- name: remove_schedules
delete from duly_schedule where id in (select value from json_each(:ids))

-- name: declared
-- What code declared, once or still.
select id, task, key from duly_schedule where is_declared order by id

-- name: ring_rule
-- The rule of any member.
select rule from duly_schedule where ring = :ring order by slot, id limit 1

-- name: next_schedule
-- When the next one is due, past those that are set aside.
select min(next_at) as next_at
  from duly_schedule
 where next_at is not null and id not in (select value from json_each(:without))

-- name: waiting_of
-- What waits of these schedules.
select {item}
  from duly_item
 where schedule_id in (select value from json_each(:ids)) and state = 'waiting'

-- name: running_of
-- What runs of these schedules.
select {item}
  from duly_item
 where schedule_id in (select value from json_each(:ids)) and state = 'running'

-- name: schedules
-- By id, keyset; with whatever filters are given.
select {schedule}
  from duly_schedule
 where id > :after
   and (:task is null or task = :task)
   and (:key is null or key = :key)
   and (:ring is null or ring = :ring)
   and (:slot is null or slot = :slot)
   and (:state is null
        or case when broken_at is not null then 'broken' when paused_at is not null then 'paused' else 'active' end
           = :state)
 order by id
 limit :most

-- name: schedule
select {schedule}
  from duly_schedule
 where (id = :id) or (task = :task and key = :key)

-- name: schedules_with_ids
select {schedule}
  from duly_schedule
 where id in (select value from json_each(:ids))
 order by id

-- name: schedules_page
select {schedule}
  from duly_schedule
 where (:owner is null or owner = :owner)
   and id > :after
   and (:task is null or task = :task)
   and (:key is null or key = coalesce(owner || '/', '') || :key)
   and (:ring is null or ring = :ring)
   and (:slot is null or slot = :slot)
   and (:state is null
        or case when broken_at is not null then 'broken' when paused_at is not null then 'paused' else 'active' end
           = :state)
 order by id
 limit :most

-- name: slots
select ring, slot, members from duly_slot where :ring is null or ring = :ring order by ring, slot

-- name: occurrences
-- The items that a schedule made, newest first.
select {occurrence}
  from duly_item
 where schedule_id = :schedule_id
 order by planned_at desc
 limit :most

-- name: broken
select count(*) from duly_schedule where broken_at is not null
