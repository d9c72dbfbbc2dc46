-- What waits is found and claimed; leases are held, looked at and closed.

-- name: survey
-- The earliest waiting item of each line, lane and rank after this one: hops along the index, so its cost is the number
-- of answers, not of rows. The limit is inside, for all that is recursive is computed before anything is answered.
with recursive head (id) as (
    select coalesce(
             (select n.id from duly_item n
               where n.state = 'waiting' and n.queue = :queue and n.lane = :lane and n.rank = :rank and n.task = :task
                 and coalesce(n.owner, '') > :owner
               order by coalesce(n.owner, ''), n.due_at limit 1),
             (select n.id from duly_item n
               where n.state = 'waiting' and n.queue = :queue and n.lane = :lane and n.rank = :rank and n.task > :task
               order by n.task, coalesce(n.owner, ''), n.due_at limit 1),
             (select n.id from duly_item n
               where n.state = 'waiting' and n.queue = :queue and n.lane = :lane and n.rank > :rank
               order by n.rank, n.task, coalesce(n.owner, ''), n.due_at limit 1),
             (select n.id from duly_item n
               where n.state = 'waiting' and n.queue = :queue and n.lane > :lane
               order by n.lane, n.rank, n.task, coalesce(n.owner, ''), n.due_at limit 1),
             (select n.id from duly_item n
               where n.state = 'waiting' and n.queue > :queue
               order by n.queue, n.lane, n.rank, n.task, coalesce(n.owner, ''), n.due_at limit 1))
    union all
    select coalesce(
             (select n.id from duly_item n
               where n.state = 'waiting' and n.queue = i.queue and n.lane = i.lane and n.rank = i.rank
                 and n.task = i.task and coalesce(n.owner, '') > coalesce(i.owner, '')
               order by coalesce(n.owner, ''), n.due_at limit 1),
             (select n.id from duly_item n
               where n.state = 'waiting' and n.queue = i.queue and n.lane = i.lane and n.rank = i.rank
                 and n.task > i.task
               order by n.task, coalesce(n.owner, ''), n.due_at limit 1),
             (select n.id from duly_item n
               where n.state = 'waiting' and n.queue = i.queue and n.lane = i.lane and n.rank > i.rank
               order by n.rank, n.task, coalesce(n.owner, ''), n.due_at limit 1),
             (select n.id from duly_item n
               where n.state = 'waiting' and n.queue = i.queue and n.lane > i.lane
               order by n.lane, n.rank, n.task, coalesce(n.owner, ''), n.due_at limit 1),
             (select n.id from duly_item n
               where n.state = 'waiting' and n.queue > i.queue
               order by n.queue, n.lane, n.rank, n.task, coalesce(n.owner, ''), n.due_at limit 1))
      from head h
      join duly_item i on i.id = h.id
     where h.id is not null
     limit :most)
select i.queue, i.task, coalesce(i.owner, ''), i.lane, i.rank, i.due_at
  from head h
  join duly_item i on i.id = h.id

-- name: paused
-- Which of these queues are paused.
select name from duly_queue where paused_at is not null and name in (select value from json_each(:names))

-- name: claim
update duly_item
   set state = 'running', attempt = attempt + 1, fence = :fence, claimed_by = :worker, started_at = :now,
       progress = null, status = case when job_id is not null then 'PROCESSING' end,
       changed_at = case when job_id is not null then :now end
 where id in (select value from json_each(:items))

-- name: pick
-- Due items of one line, lane and rank, earliest first.
select {item}
  from duly_item
 where state = 'waiting' and queue = :queue and lane = :lane and rank = :rank and task = :task
   and coalesce(owner, '') = :owner and due_at between :since and :now
   and (:started_since is null or started_at >= :started_since)
   and (:suspected is null or (crashes > 0) = :suspected)
 order by due_at, id
 limit :most

-- name: last_fence
-- The last one that was ever given: none is given twice, also when its lease is long gone.
select coalesce((select seq from sqlite_sequence where name = 'duly_lease'), 0)

-- name: lease
insert into duly_lease (fence, worker, lease_until, items, meters)
values (:fence, :worker, :lease_until, :items, :meters)

-- name: extend
-- Extends the leases that were not taken over.
update duly_lease
   set lease_until = :lease_until
 where fence in (select value from json_each(:fences))
returning fence

-- name: held
-- Which of these items still run.
select id, fence from duly_item where id in (select value from json_each(:ids)) and state = 'running'

-- name: leases
-- Every lease.
select fence, worker, lease_until from duly_lease

-- name: under
-- What runs under these leases, and (with no item) those with nothing left to rescue.
select l.fence, {item of i}
  from duly_lease l
  left join json_each(l.items) e
  left join duly_item i on i.id = e.value and i.fence = l.fence and i.state = 'running'
 where l.fence in (select value from json_each(:fences))

-- name: close
delete from duly_lease where fence in (select value from json_each(:closed))

-- name: some_leased
-- Items that were claimed and are not given up; for counts, which stop soon.
select e.value as id from duly_lease l, json_each(l.items) e limit :most
