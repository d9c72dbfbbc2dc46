-- Items by id and in pages, as the engine and as people see them; what is old is forgotten.

-- name: fetch
select {item}
  from duly_item
 where id in (select value from json_each(:ids))

-- name: old
-- The next rows by id, with when they finished if they may be forgotten: rows of a job stay as long as their job.
select id, case when state in ('done', 'cancelled') and job_id is null then finished_at end, created_at
  from duly_item
 where id > :after
 order by id
 limit :most

-- name: prune
-- Forgets what has come to its end; review waits for a person.
delete from duly_item
 where id in (select value from json_each(:ids)) and state in ('done', 'cancelled')

-- name: page
-- Newest first, keyset on id.
select {row}
  from duly_item
 where (:before is null or id < :before)
   and (:state is null or state = :state)
   and (:task is null or task = :task)
   and (:queue is null or queue = :queue)
   and (:key is null or key = :key)
 order by id desc
 limit :most

-- name: show
select {row of i}, l.lease_until
  from duly_item i
  left join duly_lease l on l.fence = i.fence and i.state = 'running'
 where i.id = :id

-- name: attempts
select {tried}
  from duly_attempt
 where item_id = :id
 order by ended_at, fence

-- name: late
-- What was started later than the grace period, latest first.
select id, task, queue, planned_at, started_at, finished_at, state,
       (started_at - planned_at) / 1e6 as lateness
  from duly_item
 where state = 'done' and started_at > planned_at + :grace * 1000000
 order by lateness desc
 limit :most

-- name: stuck
-- What is not done long after its time: waiting, running or given up.
select id, task, queue, lane, state, planned_at, due_at, attempt, last_error,
       (:now - planned_at) / 1e6 as age
  from duly_item
 where state in ('waiting', 'failed', 'running') and planned_at < :now - :grace * 1000000
   and (state <> 'waiting' or due_at <= :now)
 order by planned_at
 limit :most

-- name: owned_items
-- A page of items, newest first; the owner is in the predicate, null only for those who may see all.
select {owned_row}
  from duly_item
 where (:owner is null or owner = :owner)
   and id < :before
   and (:state is null or state = :state)
   and (:task is null or task = :task)
   and (:queue is null or queue = :queue)
   and (:key is null or key = coalesce(owner || '/', '') || :key)
   and (:error_group is null or error_group = :error_group)
   and (:schedule_id is null or schedule_id = :schedule_id)
 order by id desc
 limit :most

-- name: owned_failed
-- The same for review only, by its own index.
select {owned_row}
  from duly_item
 where state = 'failed'
   and (:owner is null or owner = :owner)
   and id < :before
   and (:task is null or task = :task)
   and (:queue is null or queue = :queue)
   and (:key is null or key = coalesce(owner || '/', '') || :key)
   and (:error_group is null or error_group = :error_group)
   and (:schedule_id is null or schedule_id = :schedule_id)
 order by id desc
 limit :most

-- name: owned_item
select {owned_row}
  from duly_item
 where id = :id and (:owner is null or owner = :owner)

-- name: item_version
select updated_at from duly_item where id = :id

-- name: edit_item
-- Another content, time or place for an item that is not running, if nobody was faster. The items of a schedule are told
-- apart by their planned times, so none is moved to another's.
update duly_item
   set args = :args, due_at = :at, planned_at = :planned_at, expires_at = :expires_at, queue = :queue,
       rank = :rank, max_attempts = :tries, updated_at = :now
 where id = :id and state = :was and fence = :fence and state in ('waiting', 'failed')
   and updated_at is :version
   and (:owner is null or owner = :owner)
   and not exists (select 1 from duly_item twin
                    where twin.schedule_id = duly_item.schedule_id and twin.planned_at = :planned_at
                      and twin.id <> duly_item.id)
returning id
