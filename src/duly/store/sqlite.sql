-- The statements of the SQLite store, one per named section; postgres.sql has the same names where one statement does.
-- Writers hold BEGIN IMMEDIATE, so what PostgreSQL says in one statement may be several here. Times are microseconds.

-- name: put_one
-- Inserts what is new; an item whose key is live is left alone and not returned.
insert into duly_item (task, queue, args, planned_at, due_at, key, rank, max_attempts, trace)
values (:task, :queue, :args, :due_at, :due_at, :key, :rank, :max_attempts, :trace)
    on conflict (task, key) where key is not null and state in ('waiting', 'running') do nothing
returning id, execution_key, task, key

-- name: load
insert into duly_item (task, queue, args, planned_at, due_at, rank, max_attempts, trace)
values (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7)

-- name: live
-- Who holds this key now.
select id, execution_key, args, planned_at
  from duly_item
 where task = :task and key = :key and key is not null and state in ('waiting', 'running')

-- name: survey
-- The earliest waiting item of each open queue, lane and rank: hops from group to group along the index, so its cost
-- is the number of groups, not of rows.
with recursive head (id) as (
    select * from (
        select id from duly_item where state = 'waiting' order by queue, lane, rank, due_at limit 1)
    union all
    select coalesce(
             (select n.id from duly_item n
               where n.state = 'waiting' and n.queue = i.queue and n.lane = i.lane and n.rank > i.rank
               order by n.rank, n.due_at limit 1),
             (select n.id from duly_item n
               where n.state = 'waiting' and n.queue = i.queue and n.lane > i.lane
               order by n.lane, n.rank, n.due_at limit 1),
             (select n.id from duly_item n
               where n.state = 'waiting' and n.queue > i.queue
               order by n.queue, n.lane, n.rank, n.due_at limit 1))
      from head h
      join duly_item i on i.id = h.id
     where h.id is not null)
select i.queue, i.lane, i.rank, i.due_at
  from head h
  join duly_item i on i.id = h.id
 where not exists (select 1 from duly_queue q where q.name = i.queue and q.paused_at is not null)
 limit :most

-- name: pick
-- Due items of one queue, lane and rank, earliest first.
select i.id
  from duly_item i
 where i.state = 'waiting' and i.queue = :queue and i.lane = :lane and i.rank = :rank
   and i.due_at between :since and :now
   and i.task in (select value from json_each(:tasks))
 order by i.due_at, i.id
 limit :most

-- name: paused
select name from duly_queue where paused_at is not null

-- name: lease
insert into duly_lease (worker, lease_until, items) values (:worker, :lease_until, :items)

-- name: claim
update duly_item
   set state = 'running', attempt = attempt + 1, fence = :fence, claimed_by = :worker, started_at = :now,
       progress = null
 where id in (select value from json_each(:ids))
returning id, task, queue, lane, rank, planned_at, due_at, key, execution_key, args, attempt, max_attempts, failures,
          crashes, losses, fence, trace

-- name: extend
-- Prolongs the leases that nobody has taken over.
update duly_lease
   set lease_until = :lease_until
 where fence in (select value from json_each(:fences))
returning fence

-- name: held
-- Which of these items still run.
select id, fence from duly_item where id in (select value from json_each(:ids)) and state = 'running'

-- name: settle_done
-- The common end, many at a time: plain successes of one claim.
update duly_item
   set state = 'done', outcome = 'done', finished_at = :finished_at
 where id in (select value from json_each(:ids)) and fence = :fence and state = 'running'
returning id

-- name: settle
-- Applies a change if its item is still in the state and under the fence it was decided for.
update duly_item
   set state = :state, outcome = coalesce(:outcome, outcome), lane = :lane, due_at = :due_at, attempt = :attempt,
       failures = :failures, crashes = :crashes, losses = :losses, finished_at = :finished_at, result = :result,
       last_error = coalesce(:error, last_error), error_class = coalesce(:error_class, error_class)
 where id = :id and fence = :fence and state = :was
   and (:expired_at is null
        or not exists (select 1 from duly_lease l where l.fence = :fence and l.lease_until >= :expired_at))
returning id

-- name: tried
insert into duly_attempt (item_id, number, fence, attempt_key, worker, started_at, ended_at, outcome, error,
                          error_class)
values (:item_id, :number, :fence, :attempt_key, :worker, :started_at, :ended_at, :outcome, :error, :error_class)

-- name: close
delete from duly_lease where fence in (select value from json_each(:closed))

-- name: progress
update duly_item set progress = :progress where id = :id and fence = :fence and state = 'running'

-- name: expired
-- Items whose lease ran out, and (with no item) leases that ran out with nothing left to rescue.
select l.fence, i.id, i.task, i.queue, i.lane, i.rank, i.planned_at, i.due_at, i.key, i.execution_key, i.args,
       i.attempt, i.max_attempts, i.failures, i.crashes, i.losses, i.trace, i.claimed_by, i.started_at
  from (select fence, items from duly_lease where lease_until < :now order by lease_until limit :most) l
  left join json_each(l.items) e
  left join duly_item i on i.id = e.value and i.fence = l.fence and i.state = 'running'

-- name: fetch
select id, task, queue, lane, rank, state, planned_at, due_at, key, execution_key, args, attempt, max_attempts,
       failures, crashes, losses, fence, claimed_by, started_at, trace
  from duly_item
 where id in (select value from json_each(:ids))

-- name: old
-- The next rows by id, with when they finished if they are done or cancelled.
select id, case when state in ('done', 'cancelled') then finished_at end, created_at
  from duly_item
 where id > :after
 order by id
 limit :most

-- name: prune
-- Forgets what has come to its end; review waits for a person.
delete from duly_item
 where id in (select value from json_each(:ids)) and state in ('done', 'cancelled')

-- name: pause
insert into duly_queue (name, paused_at) values (:queue, :now)
    on conflict (name) do update set paused_at = coalesce(duly_queue.paused_at, excluded.paused_at)

-- name: resume
update duly_queue set paused_at = null where name = :queue

-- name: page
-- Newest first, keyset on id.
select id, task, queue, lane, rank, state, outcome, planned_at, due_at, key, execution_key, args, result, progress,
       attempt, max_attempts, failures, crashes, losses, fence, claimed_by, started_at, finished_at, last_error,
       error_class, created_at
  from duly_item
 where (:before is null or id < :before)
   and (:state is null or state = :state)
   and (:task is null or task = :task)
   and (:queue is null or queue = :queue)
   and (:key is null or key = :key)
 order by id desc
 limit :most

-- name: show
select i.id, i.task, i.queue, i.lane, i.rank, i.state, i.outcome, i.planned_at, i.due_at, i.key, i.execution_key,
       i.args, i.result, i.progress, i.attempt, i.max_attempts, i.failures, i.crashes, i.losses, i.fence,
       i.claimed_by, i.started_at, i.finished_at, i.last_error, i.error_class, i.created_at, l.lease_until
  from duly_item i
  left join duly_lease l on l.fence = i.fence and i.state = 'running'
 where i.id = :id

-- name: attempts
select number, attempt_key, worker, started_at, ended_at, outcome, error, error_class
  from duly_attempt
 where item_id = :id
 order by ended_at, fence

-- name: depth
-- Live and reviewable items by queue; finished ones are not counted, so it does not grow with history.
select w.queue, w.lane, w.state, w.items, w.due, w.oldest, (q.paused_at is not null) as paused
  from (select queue, lane, state, count(*) as items, count(*) filter (where due_at <= :now) as due,
               min(due_at) as oldest
          from duly_item
         where state = 'waiting'
         group by queue, lane, state
        union all
        select i.queue, i.lane, i.state, count(*), 0, min(i.started_at)
          from duly_lease l
          join json_each(l.items) e
          join duly_item i on i.id = e.value and i.fence = l.fence and i.state = 'running'
         group by i.queue, i.lane, i.state
        union all
        select queue, 'main', state, count(*), 0, min(finished_at)
          from duly_item
         where state = 'failed'
         group by queue, state) w
  left join duly_queue q on q.name = w.queue
union all
select q.name, 'main', 'waiting', 0, 0, null, 1
  from duly_queue q
 where q.paused_at is not null
   and not exists (select 1 from duly_item i where i.queue = q.name and i.state = 'waiting')
