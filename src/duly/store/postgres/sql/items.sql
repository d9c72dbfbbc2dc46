-- Items by id and in pages, as the engine and as people see them; what is old is forgotten.

-- name: fetch
select {item}
  from duly_item
 where id = any(:ids::bigint[])

-- name: prune
-- Looks at the next rows by id and forgets those that finished long enough ago; review waits for a person, and rows of
-- a job stay as long as their job, which counts them. Answers how many are gone and where to go on: nowhere once rows
-- are younger than what is to be forgotten.
with looked as materialized (
    select id, state, finished_at, created_at, job_id from duly_item where id > :after order by id limit :most),
gone as (
    delete from duly_item
     where id = any(array(
           select id from looked
            where state in ('done', 'cancelled') and finished_at < :before and job_id is null))
       -- still: it may be revived while this waits for its lock
       and state in ('done', 'cancelled')
    returning id)
select (select count(*) from gone),
       case when (select count(*) from looked) = :most and (select max(created_at) from looked) < :before
            then (select max(id) from looked) end

-- name: page
-- Newest first, keyset on id.
select {row}
  from duly_item
 where (:before::bigint is null or id < :before::bigint)
   and (:state::text is null or state = :state::text)
   and (:task::text is null or task = :task::text)
   and (:queue::text is null or queue = :queue::text)
   and (:key::text is null or key = :key::text)
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
       extract(epoch from started_at - planned_at)::float8 as lateness
  from duly_item
 where state = 'done' and started_at > planned_at + :grace * interval '1 second'
 order by lateness desc
 limit :most

-- name: stuck
-- What is not done long after its time: waiting, running or given up.
select id, task, queue, lane, state, planned_at, due_at, attempt, last_error,
       extract(epoch from :now - planned_at)::float8 as age
  from duly_item
 where (is_waiting or in_review or state = 'running') and planned_at < :now - :grace * interval '1 second'
   and (state <> 'waiting' or due_at <= :now)
 order by planned_at
 limit :most

-- name: owned_items
-- A page of items, newest first; the owner is in the predicate, null only for those who may see all.
select {owned_row}
  from duly_item
 where (:owner::text is null or owner = :owner::text)
   and id < :before
   and (:state::text is null or state = :state::text)
   and (:task::text is null or task = :task::text)
   and (:queue::text is null or queue = :queue::text)
   and (:key::text is null or key = coalesce(owner || '/', '') || :key::text)
   and (:error_group::text is null or error_group = :error_group::text)
   and (:schedule_id::bigint is null or schedule_id = :schedule_id::bigint)
 order by id desc
 limit :most

-- name: owned_failed
-- The same for review only, by its own index.
select {owned_row}
  from duly_item
 where in_review
   and (:owner::text is null or owner = :owner::text)
   and id < :before
   and (:task::text is null or task = :task::text)
   and (:queue::text is null or queue = :queue::text)
   and (:key::text is null or key = coalesce(owner || '/', '') || :key::text)
   and (:error_group::text is null or error_group = :error_group::text)
   and (:schedule_id::bigint is null or schedule_id = :schedule_id::bigint)
 order by id desc
 limit :most

-- name: owned_item
select {owned_row}
  from duly_item
 where id = :id and (:owner::text is null or owner = :owner::text)

-- name: item_version
select updated_at from duly_item where id = :id

-- name: edit_item
-- Another content, time or place for an item that is not running, if nobody was faster. The items of a schedule are told
-- apart by their planned times, so none is moved to another's.
update duly_item
   set args = :args::json, due_at = :at, planned_at = :planned_at, expires_at = :expires_at::timestamptz, queue = :queue,
       rank = :rank, max_attempts = :tries::int, updated_at = :now
 where id = :id and state = :was and fence = :fence and state in ('waiting', 'failed')
   and updated_at is not distinct from :version::timestamptz
   and (:owner::text is null or owner = :owner::text)
   and not exists (select 1 from duly_item twin
                    where twin.schedule_id = duly_item.schedule_id and twin.planned_at = :planned_at
                      and twin.id <> duly_item.id)
returning id
