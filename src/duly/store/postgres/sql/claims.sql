-- What waits is found and claimed; leases are held, looked at and closed.

-- name: survey
-- The earliest waiting item of each line, lane and rank after this one: hops along the index, so its cost is the number
-- of answers, not of rows.
with recursive head as (
    (select queue, lane, rank, task, coalesce(owner, '') as owner, due_at
       from duly_item
      where is_waiting
        and (queue, lane, rank, task, coalesce(owner, '')) > (:queue, :lane, :rank::smallint, :task, :owner)
      order by queue, lane, rank, task, coalesce(owner, ''), due_at
      limit 1)
    union all
    select n.queue, n.lane, n.rank, n.task, n.owner, n.due_at
      from head h
     cross join lateral (
           select i.queue, i.lane, i.rank, i.task, coalesce(i.owner, '') as owner, i.due_at
             from duly_item i
            where i.is_waiting
              and (i.queue, i.lane, i.rank, i.task, coalesce(i.owner, '')) > (h.queue, h.lane, h.rank, h.task, h.owner)
            order by i.queue, i.lane, i.rank, i.task, coalesce(i.owner, ''), i.due_at
            limit 1) n)
select queue, task, owner, lane, rank, due_at from head limit :most

-- name: paused
-- Which of these queues are paused.
select name from duly_queue where paused_at is not null and name = any(:names::text[])

-- name: claim
-- Takes due items share by share, best rank first, under one new fence; rows that another claim has locked are
-- skipped. The clock of the database decides what is due, so that no item starts early. The rows are locked, so their
-- places (ctid) hold until the update, which finds them there without an index.
with closed as materialized (
    select name from duly_queue where paused_at is not null and name = any(:families::text[])),
picked as materialized (
    select array_agg(due.id) as ids, array_agg(due.ctid) as places
      from unnest(:queues::text[], :tasks::text[], :owners::text[], :lanes::text[], :limits::int[], :ranks::text[],
                  :floors::text[])
           as s(queue, task, owner, lane, quota, ranks, floors)
     cross join lateral (
           select ranked.id, ranked.ctid
             from unnest(s.ranks::smallint[], s.floors::timestamptz[]) as r(rank, since)
            cross join lateral (
                  select i.id, i.ctid
                    from duly_item i
                   where i.is_waiting
                     and i.queue = s.queue and i.lane = s.lane and i.rank = r.rank
                     and i.task = s.task and coalesce(i.owner, '') = s.owner
                     and i.due_at between r.since and coalesce(:now::timestamptz, statement_timestamp())
                   order by i.due_at, i.id
                   limit s.quota
                     for update skip locked) ranked
            limit s.quota) due
     where not exists (select from closed c where c.name = s.queue or starts_with(s.queue, c.name || '/'))),
lease as (
    insert into duly_lease (worker, lease_until, items)
    select :worker, coalesce(:now::timestamptz, statement_timestamp()) + :lease::interval, ids
      from picked where ids is not null
    returning fence)
update duly_item
   set state = 'running', attempt = attempt + 1, fence = (select fence from lease), claimed_by = :worker,
       started_at = coalesce(:now::timestamptz, statement_timestamp()), progress = null,
       status = case when job_id is not null then 'PROCESSING' end,
       changed_at = case when job_id is not null then coalesce(:now::timestamptz, statement_timestamp()) end
 where ctid = any((select places from picked)::tid[])
returning {item}

-- name: pick
-- The same without taking them yet: locks due items share by share, each with the place of its share. Each rank may be
-- there twice: for items that may have crashed a worker, and for the others.
with closed as materialized (
    select name from duly_queue where paused_at is not null and name = any(:families::text[]))
select s.place, due.*
  from unnest(:queues::text[], :tasks::text[], :owners::text[], :lanes::text[], :limits::int[], :ranks::text[],
              :floors::text[], :suspected::text[], :places::int[], :started_sinces::timestamptz[])
       as s(queue, task, owner, lane, quota, ranks, floors, suspected, place, started_since)
 cross join lateral (
       select ranked.*
         from unnest(s.ranks::smallint[], s.floors::timestamptz[], s.suspected::bool[]) as r(rank, since, is_suspect)
        cross join lateral (
              select {item of i}
                from duly_item i
               where i.is_waiting
                 and i.queue = s.queue and i.lane = s.lane and i.rank = r.rank
                 and i.task = s.task and coalesce(i.owner, '') = s.owner
                 and i.due_at between r.since and :now
                 and (s.started_since is null or i.started_at >= s.started_since)
                 and (r.is_suspect is null or (i.crashes > 0) = r.is_suspect)
               order by i.due_at, i.id
               limit s.quota
                 for update skip locked) ranked
        limit s.quota) due
 where not exists (select from closed c where c.name = s.queue or starts_with(s.queue, c.name || '/'))

-- name: start
-- Takes what was picked: writes the leases, puts their items under them, and keeps what was granted.
with lease as (
    insert into duly_lease (worker, lease_until, items, meters)
    select :worker, :lease_until, n.items::bigint[], n.meters::text[]
      from unnest(:items::text[], :meters::text[]) as n(items, meters)
    returning fence, items),
started as (
    update duly_item i
       set state = 'running', attempt = i.attempt + 1, fence = n.fence, claimed_by = :worker, started_at = :now,
           progress = null, status = case when i.job_id is not null then 'PROCESSING' end,
           changed_at = case when i.job_id is not null then :now::timestamptz end
      from (select l.fence, e.id from lease l cross join unnest(l.items) as e(id)) n
     where i.id = n.id),
counted as (
    update duly_meter m
       set hits = n.hits::timestamptz[]
      from unnest(:names::text[], :hits::text[]) as n(name, hits)
     where m.name = n.name)
select unnest(items), fence from lease

-- name: extend
-- Extends the leases that were not taken over; returns the items that this worker no longer holds, by fence.
with kept as (
    update duly_lease
       set lease_until = :lease_until
     where fence = any(:fences::bigint[])
    returning fence)
select h.id, h.fence
  from unnest(:ids::bigint[], :item_fences::bigint[]) as h(id, fence)
  left join duly_item i on i.id = h.id and i.id = any(:ids::bigint[]) and i.fence = h.fence and i.state = 'running'
  left join kept k on k.fence = h.fence
 where i.id is null or k.fence is null

-- name: held
-- Which of these items still run.
select id, fence from duly_item where id = any(:ids::bigint[]) and state = 'running'

-- name: leases
-- Every lease; waits or fails where a heartbeat would, for a table that is locked against writers still answers readers.
with writable as (update duly_lease set lease_until = lease_until where false)
select fence, worker, lease_until from duly_lease

-- name: under
-- What runs under these leases, and (with no item) those with nothing left to rescue.
select l.fence, {item of i}
  from duly_lease l
  left join lateral (
       select * from duly_item i where i.id = any(l.items) and i.fence = l.fence and i.state = 'running') i
    on true
 where l.fence = any(:fences::bigint[])

-- name: close
delete from duly_lease where fence = any(:closed::bigint[])

-- name: some_leased
-- Items that were claimed and are not given up; for counts, which stop soon.
select unnest(items) as id from duly_lease limit :most
