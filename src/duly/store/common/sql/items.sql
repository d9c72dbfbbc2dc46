-- Items by id and in pages, as the engine and as people see them; what is old is forgotten.

-- name: page
-- Newest first, keyset on id. The owner is null only for those who may see all.
select {row}
  from duly_item
 where id < :before
   and {given owner, state, task, queue, key}
 order by id desc
 limit :most

-- name: failed_page
-- The same for review only, by its own index.
select {row}
  from duly_item
 where {in_review} and id < :before
   and {given owner, task, queue, key}
 order by id desc
 limit :most

-- name: rows
select {row}
  from duly_item
 where {id_given} and {given owner}

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

-- name: owned_planned
-- A page of a task's items by when they are planned, newest first; `is_again`: whether they wait to be tried again.
select {row}
  from duly_item
 where id < :before and task = :task
   and {given owner, state}
   and (:since::timestamptz is null or planned_at >= :since::timestamptz)
   and (:until::timestamptz is null or planned_at < :until::timestamptz)
   and (:is_again::boolean is null or (lane = 'retry' or coalesce(outcome, '') = 'throttled') = :is_again::boolean)
 order by id desc
 limit :most

-- name: item_version
select updated_at from duly_item where id = :id

-- name: own_totals
-- Of the newest items of this owner: how many wait, are due, wait for a retry, run, are in review and are late, the
-- groups in review, and how many were looked at. Of the newest schedules of this owner: how many are active, paused and
-- broken, how many were looked at, and when the next one is due.
select i.*, s.*
  from (select count(*) filter (where waits = 1) as waits,
               count(*) filter (where waits = 1 and due_at <= :now) as due,
               count(*) filter (where waits = 1 and lane = 'retry') as retries,
               count(*) filter (where state = 'running') as runs,
               count(*) filter (where reviewed = 1) as reviewed,
               count(*) filter (where waits = 1 and lane = 'main' and due_at < :before) as late,
               count(distinct case when reviewed = 1 then error_group end) as error_groups,
               count(*) as looked
          from (select state, lane, due_at, error_group, case when {is_waiting} then 1 else 0 end as waits,
                       case when {in_review} then 1 else 0 end as reviewed
                  from duly_item
                 where owner = :owner
                 order by id desc
                 limit :most) n) i
 cross join (select count(*) filter (where broken_at is null and paused_at is null) as actives,
                    count(*) filter (where broken_at is null and paused_at is not null) as pauses,
                    count(*) filter (where broken_at is not null) as broken,
                    count(*) as looked_at,
                    min(next_at) as next_at
               from (select broken_at, paused_at, next_at
                       from duly_schedule
                      where owner = :owner
                      order by id desc
                      limit :most) n) s

-- name: edit_item
-- Another content, time or queue for an item that is not running, unless it was changed meanwhile. The items of a
-- schedule have different planned times, so none is moved to the time of another.
update duly_item
   set args = :args::json, due_at = :at, planned_at = :planned_at, expires_at = :expires_at::timestamptz, queue = :queue,
       rank = :rank, max_attempts = :tries::int, updated_at = :now
 where id = :id and state = :was and fence = :fence and state in ('waiting', 'failed')
   and (updated_at = :version::timestamptz or updated_at is null and :version::timestamptz is null)
   and {given owner}
   and not exists (select 1 from duly_item twin
                    where twin.schedule_id = duly_item.schedule_id and twin.planned_at = :planned_at
                      and twin.id <> duly_item.id)
returning id

-- name: endings
-- How these items have ended; those that have not, with their state.
select id, state, result, last_error
  from duly_item
 where {id_given}

-- name: waiting_of_task
select id from duly_item where {is_waiting} and task = :task and {given owner} order by due_at limit :most

-- name: failed_of_task
select id from duly_item where {in_review} and task = :task and {given owner} order by id limit :most
