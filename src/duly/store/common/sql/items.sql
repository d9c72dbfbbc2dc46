-- Items by id and in pages, as the engine and as people see them; what is old is forgotten.

-- name: page
-- Newest first, keyset on id.
select {row}
  from duly_item
 where (:before::bigint is null or id < :before::bigint)
   and {given state, task, queue, key}
 order by id desc
 limit :most

-- name: show
select {row of i}, l.lease_until
  from duly_item i
  left join duly_lease l on l.fence = i.fence and i.state = 'running'
 where i.id = :id

-- name: origin
-- Where an item comes from: the trace in which it was put, and the key of its schedule.
select i.trace, s.key as schedule_key
  from duly_item i
  left join duly_schedule s on s.id = i.schedule_id
 where i.id = :id

-- name: attempts
select {tried}
  from duly_attempt
 where item_id = :id
 order by ended_at, fence

-- name: owned_items
-- A page of items, newest first; the owner is in the predicate, null only for those who may see all.
select {owned_row}
  from duly_item
 where id < :before
   and {given owner, state, task, queue, error_group, schedule_id}
   and (:key::text is null or key = coalesce(owner || '/', '') || :key::text)
 order by id desc
 limit :most

-- name: owned_planned
-- A page of a task's items by when they are planned, newest first; `is_again`: whether they wait to be tried again.
select {owned_row}
  from duly_item
 where id < :before and task = :task
   and {given owner, state}
   and (:since::timestamptz is null or planned_at >= :since::timestamptz)
   and (:until::timestamptz is null or planned_at < :until::timestamptz)
   and (:is_again::boolean is null or (lane = 'retry' or coalesce(outcome, '') = 'throttled') = :is_again::boolean)
 order by id desc
 limit :most

-- name: owned_failed
-- The same for review only, by its own index.
select {owned_row}
  from duly_item
 where {in_review} and id < :before
   and {given owner, task, queue, error_group, schedule_id}
   and (:key::text is null or key = coalesce(owner || '/', '') || :key::text)
 order by id desc
 limit :most

-- name: owned_item
select {owned_row}
  from duly_item
 where id = :id and {given owner}

-- name: item_version
select updated_at from duly_item where id = :id
