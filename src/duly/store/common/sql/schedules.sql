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

-- name: standing
-- Of the newest schedules: how many are active, paused and broken, how many were looked at, and when the next one is due;
-- and in how many groups the first so many items in review are.
select count(*) filter (where broken_at is null and paused_at is null),
       count(*) filter (where broken_at is null and paused_at is not null),
       count(*) filter (where broken_at is not null),
       count(*),
       min(next_at) as next_at,
       (select count(distinct error_group)
          from (select error_group from duly_item where {in_review} limit :most) i)
  from (select broken_at, paused_at, next_at from duly_schedule order by id desc limit :most) s
