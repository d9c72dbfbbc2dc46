-- Recurrences: they join, are revised, make items and move on.

-- name: enroll
insert into duly_schedule ({new_schedule})
select {new_schedule of n}
  from {many new_schedule as n}
    on conflict (task, key) do nothing
returning id, task, key

-- name: taken
-- Which of these keys have a schedule.
select s.id, n.task, n.key
  from unnest(:task::text[], :key::text[]) as n(task, key)
 cross join lateral (select id from duly_schedule where task = n.task and key = n.key limit 1) s

-- name: open_ring
insert into duly_slot (ring, slot) values (:ring, 0) on conflict (ring, slot) do nothing

-- name: lock_ring
-- Joins to a ring take turns at its first slot.
select slot from duly_slot where ring = :ring and slot = 0 for update

-- name: due_schedules
select {schedule}
  from duly_schedule
 where next_at between :since and :now and id not in (select unnest(:seen::bigint[]))
 order by next_at, id
 limit :most
   for update skip locked

-- name: some_schedules
select {schedule}
  from duly_schedule
 where id = any(:ids::bigint[])
 order by id
   for update

-- name: occur
-- Makes items of occurrences, in this order.
insert into duly_item (task, queue, args, planned_at, due_at, rank, schedule_id, streak, fingerprint, expires_at, owner)
select s.task, s.queue, s.args, o.at, o.at, s.rank, s.id, s.failures, s.fingerprint,
       o.at + s.max_lateness * interval '1 second', s.owner
  from unnest(:id::bigint[], :at::timestamptz[]) with ordinality as o(id, at, place)
  join duly_schedule s on s.id = o.id and s.id = any(:id::bigint[])
 order by o.place
    on conflict (schedule_id, planned_at) where schedule_id is not null do nothing
returning schedule_id, id

-- name: move_on
update duly_schedule s
   set next_at = a.next_at, last_at = a.last_at, skipped = a.skipped, last_item = coalesce(a.last_item, s.last_item)
  from unnest(:id::bigint[], :next_at::timestamptz[], :last_at::timestamptz[], :skipped::bigint[],
              :last_item::bigint[])
       as a(id, next_at, last_at, skipped, last_item)
 where s.id = any(:id::bigint[]) and s.id = a.id

-- name: remove_schedules
delete from duly_schedule where id = any(:ids::bigint[])

-- name: next_schedule
-- When the next one is due, past those that are set aside.
select min(next_at) as next_at
  from duly_schedule
 where next_at is not null and id not in (select value::bigint from json_array_elements_text(:without::json))

-- name: waiting_of
-- What waits of these schedules.
select {item}
  from duly_item
 where schedule_id = any(:ids::bigint[]) and state = 'waiting'
   for update

-- name: running_of
-- The running items of these schedules. No lock: a settling transaction holds the item, and locks its schedule next.
select {item}
  from duly_item
 where schedule_id = any(:ids::bigint[]) and state = 'running'

-- name: lock_waiting
-- Locks those of these items that wait: they cannot be claimed until the end of the transaction.
select id from duly_item where id = any(:ids::bigint[]) and state = 'waiting' order by id for update

-- name: schedules_with_ids
select {schedule}
  from duly_schedule
 where id = any(array(select value::bigint from json_array_elements_text(:ids::json)))
 order by id

-- name: failed_of
-- The last items of these schedules, as far as they stand in review.
select id
  from duly_item
 where id = any(array(select last_item from duly_schedule
                       where id = any(array(select value::bigint from json_array_elements_text(:ids::json)))))
   and {in_review}

-- name: retask_schedules
-- Gives these schedules another task, and another queue where one is given. The members of its ring come along.
update duly_schedule s
   set task = :new, queue = coalesce(n.queue, s.queue), ring = case when s.ring = :task then :new else s.ring end
  from json_to_recordset(:rows::json) as n(id bigint, queue text)
 where s.id = n.id and s.task = :task and {given owner}
returning s.id
