-- Recurrences: they join, are revised, make items and move on.

-- name: seats
select slot, members from duly_slot where ring = :ring

-- name: revise
-- What others write is left to them, and whose it is stays.
update duly_schedule
   set {set schedule but id, task, key, ring, last_item, last_success_at, last_error, unchanged, created_at, owner}
 where id = :id

-- name: declared
-- What code declared, once or still.
select id, task, key from duly_schedule where is_declared order by id

-- name: ring_rule
-- The rule of any member.
select rule from duly_schedule where ring = :ring order by slot, id limit 1

-- name: schedules
-- By id, keyset; with whatever filters are given.
select {schedule}
  from duly_schedule
 where id > :after
   and {given task, key, ring, slot}
   and (:state::text is null
        or case when broken_at is not null then 'broken' when paused_at is not null then 'paused' else 'active' end
           = :state::text)
 order by id
 limit :most

-- name: schedule
select {schedule}
  from duly_schedule
 where (id = :id::bigint) or (task = :task::text and key = :key::text)

-- name: schedules_page
select {schedule}
  from duly_schedule
 where id > :after
   and {given owner, task, ring, slot}
   and (:key::text is null or key = coalesce(owner || '/', '') || :key::text)
   and (:state::text is null
        or case when broken_at is not null then 'broken' when paused_at is not null then 'paused' else 'active' end
           = :state::text)
 order by id
 limit :most

-- name: schedules_by_id
select id from duly_schedule where id > :after order by id limit :most

-- name: schedules_by_next
-- Those that come next first.
select id, next_at
  from duly_schedule
 where next_at is not null and (next_at, id) > (:after_at::timestamptz, :after_id::bigint)
 order by next_at, id
 limit :most

-- name: schedules_fitting
-- Those of these schedules that a filter means.
select {schedule}
  from duly_schedule
 where {id_given}
   and {given owner, task, ring, slot}
   and (:key::text is null or key = coalesce(owner || '/', '') || :key::text)
   and (:contains::text is null or lower(key) like lower(:contains::text) escape '!')
   and (:state::text is null
        or case when broken_at is not null then 'broken' when paused_at is not null then 'paused' else 'active' end
           = :state::text)

-- name: slots
select ring, slot, members from duly_slot where {given ring} order by ring, slot

-- name: occurrences
-- The items that a schedule made, newest first.
select {occurrence}
  from duly_item
 where schedule_id = :schedule_id
 order by planned_at desc
 limit :most

-- name: broken
select count(*) from duly_schedule where broken_at is not null
