-- Recurrences: they join, are revised, make items and move on.

-- name: enroll
insert into duly_schedule ({new_schedule}) values ({values new_schedule})
    on conflict (task, key) do nothing
returning id, task, key

-- name: taken
select id, task, key from duly_schedule where task = :task and key = :key

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
returning schedule_id, id

-- name: move_on
update duly_schedule
   set next_at = :next_at, last_at = :last_at, skipped = :skipped, last_item = coalesce(:last_item, last_item)
 where id = :id

-- name: remove_schedules
delete from duly_schedule where id in (select value from json_each(:ids))

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

-- name: schedules_with_ids
select {schedule}
  from duly_schedule
 where id in (select value from json_each(:ids))
 order by id

-- name: failed_of
-- The last items of these schedules, as far as they stand in review.
select id
  from duly_item
 where id in (select last_item from duly_schedule where id in (select value from json_each(:ids))) and {in_review}

-- name: retask_schedules
-- Gives these schedules another task, and another queue where one is given. The members of its ring come along.
update duly_schedule
   set task = :new, queue = coalesce(n.value ->> 'queue', queue), ring = case when ring = :task then :new else ring end
  from json_each(:rows) n
 where duly_schedule.id = n.value ->> 'id' and task = :task and {given owner}
returning id
