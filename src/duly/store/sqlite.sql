-- The statements of the SQLite store, one per named section; postgres.sql has the same names where one statement does.
-- Writers hold BEGIN IMMEDIATE, so what PostgreSQL says in one statement may be several here. Times are microseconds.

-- name: put_one
-- Inserts what is new; an item whose key is live is left alone and not returned.
insert into duly_item (task, queue, args, planned_at, due_at, key, rank, max_attempts, trace, expires_at, owner)
values (:task, :queue, :args, :due_at, :due_at, :key, :rank, :max_attempts, :trace, :expires_at, :owner)
    on conflict (task, key) where key is not null and state in ('waiting', 'running') do nothing
returning id, execution_key, task, key

-- name: load
insert into duly_item (task, queue, args, planned_at, due_at, rank, max_attempts, trace, expires_at, owner)
values (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?8, ?9)

-- name: live
-- Who holds this key now.
select id, execution_key, args, planned_at
  from duly_item
 where task = :task and key = :key and key is not null and state in ('waiting', 'running')

-- name: arm_find
-- Whose keys these are for good.
select id, key, version, args, state, (state in ('waiting', 'running') and started_at is not null) as is_begun
  from duly_item
 where task = :task and key in (select value from json_each(:keys)) and version is not null

-- name: versioned
-- Who has a key for good that begins like this, the newest first.
select id from duly_item
 where task = :task and version is not null and key >= :low and key < :high
 order by id desc
 limit 500

-- name: arm_new
insert into duly_item (task, queue, args, planned_at, due_at, key, rank, max_attempts, trace, version)
values (:task, :queue, :args, :due_at, :due_at, :key, :rank, :max_attempts, :trace, :version)
    on conflict do nothing
returning id, key

-- name: arm_leave
-- The try that a newer version leaves behind, ended or under way, for the item's story.
insert into duly_attempt (item_id, number, fence, attempt_key, worker, started_at, ended_at, outcome)
select id, attempt, fence, printf('%d-%d-%08x', id, attempt, fence), claimed_by, started_at,
       coalesce(finished_at, :now), case when state = 'running' then 'superseded' else outcome end
  from duly_item
 where id in (select value from json_each(:ids)) and state in ('running', 'done')
    on conflict do nothing

-- name: arm_again
-- A row begins anew. A try of it that is still under way has its result refused, for the item waits again.
update duly_item
   set state = 'waiting', lane = 'main', outcome = 'armed', queue = :queue, args = :args, rank = :rank,
       planned_at = :due_at, due_at = :due_at, max_attempts = :max_attempts, trace = :trace, version = :version,
       attempt = 0, failures = 0, crashes = 0, losses = 0, revivals = 0, result = null, progress = null,
       started_at = null, finished_at = null, last_error = null, error_class = null, error_group = null, updated_at = :now
 where id = :id

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

-- name: newest
-- What fell due last.
select queue, task, coalesce(owner, ''), lane, rank, due_at
  from duly_item
 where state = 'waiting' and due_at <= :now
 order by due_at desc
 limit :most

-- name: oldest
-- What has been due for longest.
select queue, task, coalesce(owner, ''), lane, rank, due_at
  from duly_item
 where state = 'waiting' and due_at <= :now
 order by due_at
 limit :most

-- name: next_due
select min(due_at) from duly_item where state = 'waiting' and due_at > :now

-- name: pick
-- Due items of one line, lane and rank, earliest first.
select id, task, queue, lane, rank, planned_at, due_at, key, execution_key, args, attempt, max_attempts, failures,
       crashes, losses, fence, started_at, trace, schedule_id, streak, fingerprint, expires_at, revivals, owner
  from duly_item
 where state = 'waiting' and queue = :queue and lane = :lane and rank = :rank and task = :task
   and coalesce(owner, '') = :owner and due_at between :since and :now
   and (:started_since is null or started_at >= :started_since)
 order by due_at, id
 limit :most

-- name: paused
-- Which of these queues are paused.
select name from duly_queue where paused_at is not null and name in (select value from json_each(:names))

-- name: last_fence
-- The last one that was ever given: none is given twice, also when its lease is long gone.
select coalesce((select seq from sqlite_sequence where name = 'duly_lease'), 0)

-- name: lease
insert into duly_lease (fence, worker, lease_until, items, meters)
values (:fence, :worker, :lease_until, :items, :meters)

-- name: claim
update duly_item
   set state = 'running', attempt = attempt + 1, fence = :fence, claimed_by = :worker, started_at = :now,
       progress = null
 where id in (select value from json_each(:items))

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
   set state = :state, outcome = coalesce(:outcome, outcome), lane = :lane, due_at = :due_at,
       rank = coalesce(:rank, rank), attempt = :attempt, failures = :failures, crashes = :crashes, losses = :losses,
       finished_at = :finished_at, result = :result,
       last_error = coalesce(:error, last_error), error_class = coalesce(:error_class, error_class),
       error_group = coalesce(:error_group, error_group),
       streak = case when :outcome = 'revived' then null else streak end,
       revivals = case when :outcome = 'revived' then revivals + 1 else revivals end
 where id = :id and fence = :fence and state = :was
   and (:expired_at is null
        or not exists (select 1 from duly_lease l where l.fence = :fence and l.lease_until >= :expired_at))
returning id

-- name: tried
insert into duly_attempt (item_id, number, fence, attempt_key, worker, started_at, ended_at, outcome, error,
                          error_class)
values (:item_id, :number, :fence, :attempt_key, :worker, :started_at, :ended_at, :outcome, :error, :error_class)

-- name: settle_member
-- What the end of a try means for its schedule.
update duly_schedule
   set failures = case when :is_success then 0 else max(failures + 1, :failures) end,
       last_success_at = case when :is_success then :at else last_success_at end,
       last_error = case when :is_success then last_error else :error end,
       broken_at = case when :is_broken then coalesce(broken_at, :at) else broken_at end,
       next_at = case when :is_broken then null else next_at end,
       fingerprint = coalesce(:fingerprint, fingerprint),
       unchanged = unchanged + :is_unchanged,
       keep = coalesce(:keep, keep)
 where id = :schedule_id

-- name: write_note
insert into duly_audit (at, actor, action, subject, details) values (:now, :actor, :action, :subject, :details)

-- name: meters
select name, most, per, hits from duly_meter where name in (select value from json_each(:names))

-- name: under_way
-- How many leases stand under each of these meters.
select m.value, count(*)
  from duly_lease l
  join json_each(l.meters) m
 where l.meters is not null and m.value in (select value from json_each(:names))
 group by m.value

-- name: hit
insert into duly_meter (name, hits) values (:name, :hits) on conflict (name) do update set hits = excluded.hits

-- name: set_meter
insert into duly_meter (name, most, per) values (:name, :most, :per)
    on conflict (name) do update set most = excluded.most, per = excluded.per

-- name: all_meters
select name, most, per, hits from duly_meter where name > :after order by name limit :most

-- name: enroll
insert into duly_schedule (task, key, queue, args, rule, zone, next_at, rank, catch_up, max_lateness, overlap, ring, slot,
                           is_declared, owner)
values (:task, :key, :queue, :args, :rule, :zone, :next_at, :rank, :catch_up, :max_lateness, :overlap, :ring, :slot,
        :is_declared, :owner)
    on conflict (task, key) do nothing
returning id

-- name: taken
select id from duly_schedule where task = :task and key = :key

-- name: seats
select slot, members from duly_slot where ring = :ring

-- name: due_schedules
select id, task, key, queue, rank, args, rule, zone, catch_up, max_lateness, overlap, ring, slot, is_declared, next_at,
       paused_at, broken_at, failures, last_at, last_item, last_success_at, last_error, fingerprint, unchanged, skipped,
       keep, created_at
  from duly_schedule
 where next_at between :since and :now and id not in (select value from json_each(:seen))
 order by next_at, id
 limit :most

-- name: some_schedules
select id, task, key, queue, rank, args, rule, zone, catch_up, max_lateness, overlap, ring, slot, is_declared, next_at,
       paused_at, broken_at, failures, last_at, last_item, last_success_at, last_error, fingerprint, unchanged, skipped,
       keep, created_at
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
returning id

-- name: move_on
update duly_schedule
   set next_at = :next_at, last_at = :last_at, skipped = :skipped, last_item = coalesce(:last_item, last_item)
 where id = :id

-- name: revise
update duly_schedule
   set queue = :queue, rank = :rank, args = :args, rule = :rule, zone = :zone, catch_up = :catch_up,
       max_lateness = :max_lateness, overlap = :overlap, slot = :slot, is_declared = :is_declared, next_at = :next_at,
       paused_at = :paused_at, broken_at = :broken_at, failures = :failures, last_at = :last_at, skipped = :skipped,
       keep = :keep, fingerprint = :fingerprint
 where id = :id

-- name: remove_schedules
delete from duly_schedule where id in (select value from json_each(:ids))

-- name: declared
-- What code declared, once or still.
select id, task, key from duly_schedule where is_declared order by id

-- name: ring_rule
-- The rule of any member.
select rule from duly_schedule where ring = :ring order by slot, id limit 1

-- name: next_schedule
-- When the next one is due, past those that are set aside.
select min(next_at) as next_at
  from duly_schedule
 where next_at is not null and id not in (select value from json_each(:without))

-- name: close
delete from duly_lease where fence in (select value from json_each(:closed))

-- name: progress
update duly_item set progress = :progress where id = :id and fence = :fence and state = 'running'

-- name: leases
-- Every lease.
select fence, worker, lease_until from duly_lease

-- name: expired
select fence from duly_lease where lease_until < :now order by lease_until limit :most

-- name: under
-- What runs under these leases, and (with no item) those with nothing left to rescue.
select l.fence, i.id, i.task, i.queue, i.lane, i.rank, i.planned_at, i.due_at, i.key, i.execution_key, i.args,
       i.attempt, i.max_attempts, i.failures, i.crashes, i.losses, i.trace, i.claimed_by, i.started_at,
       i.schedule_id, i.streak, i.fingerprint, i.expires_at, i.revivals, i.owner
  from duly_lease l
  left join json_each(l.items) e
  left join duly_item i on i.id = e.value and i.fence = l.fence and i.state = 'running'
 where l.fence in (select value from json_each(:fences))

-- name: fetch
select id, task, queue, lane, rank, state, planned_at, due_at, key, execution_key, args, attempt, max_attempts,
       failures, crashes, losses, fence, claimed_by, started_at, trace, schedule_id, streak, fingerprint, expires_at, revivals, owner
  from duly_item
 where id in (select value from json_each(:ids))

-- name: waiting_of
-- What waits of these schedules.
select id, task, queue, lane, rank, state, planned_at, due_at, key, execution_key, args, attempt, max_attempts,
       failures, crashes, losses, fence, claimed_by, started_at, trace, schedule_id, streak, fingerprint, expires_at, revivals, owner
  from duly_item
 where schedule_id in (select value from json_each(:ids)) and state = 'waiting'

-- name: running_of
-- What runs of these schedules.
select id, task, queue, lane, rank, state, planned_at, due_at, key, execution_key, args, attempt, max_attempts,
       failures, crashes, losses, fence, claimed_by, started_at, trace, schedule_id, streak, fingerprint, expires_at, revivals
  from duly_item
 where schedule_id in (select value from json_each(:ids)) and state = 'running'

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

-- name: is_queue
-- Whether anything has this name, or one below it: what waits, runs, is in review or comes again, or was put lately.
select case
         when exists (select 1 from duly_item where state = 'waiting' and queue = :queue) then 1
         when exists (select 1 from duly_item
                       where state = 'waiting' and queue > :queue || '/' and queue < :queue || '0') then 1
         when exists (select 1 from (select queue from duly_item order by id desc limit 10000) i
                       where i.queue = :queue) then 1
         when exists (select 1 from duly_schedule where queue = :queue) then 1
         when exists (select 1 from duly_lease l
                       join json_each(l.items) e
                       join duly_item i on i.id = e.value
                       where i.queue = :queue) then 1
         else exists (select 1 from duly_item where state = 'failed' and queue = :queue)
       end as is_there

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

-- name: schedules
-- By id, keyset; with whatever filters are given.
select id, task, key, queue, rank, args, rule, zone, catch_up, max_lateness, overlap, ring, slot, is_declared, next_at,
       paused_at, broken_at, failures, last_at, last_item, last_success_at, last_error, fingerprint, unchanged, skipped,
       keep, created_at
  from duly_schedule
 where id > :after
   and (:task is null or task = :task)
   and (:key is null or key = :key)
   and (:ring is null or ring = :ring)
   and (:slot is null or slot = :slot)
   and (:state is null
        or case when broken_at is not null then 'broken' when paused_at is not null then 'paused' else 'active' end
           = :state)
 order by id
 limit :most

-- name: schedule
select id, task, key, queue, rank, args, rule, zone, catch_up, max_lateness, overlap, ring, slot, is_declared, next_at,
       paused_at, broken_at, failures, last_at, last_item, last_success_at, last_error, fingerprint, unchanged, skipped,
       keep, created_at
  from duly_schedule
 where (id = :id) or (task = :task and key = :key)

-- name: schedules_with_ids
select id, task, key, queue, rank, args, rule, zone, catch_up, max_lateness, overlap, ring, slot, is_declared, next_at,
       paused_at, broken_at, failures, last_at, last_item, last_success_at, last_error, fingerprint, unchanged, skipped,
       keep, created_at
  from duly_schedule
 where id in (select value from json_each(:ids))
 order by id

-- name: slots
select ring, slot, members from duly_slot where :ring is null or ring = :ring order by ring, slot

-- name: occurrences
-- The items that a schedule made, newest first.
select id, state, outcome, planned_at, started_at, finished_at, attempt, last_error
  from duly_item
 where schedule_id = :schedule_id
 order by planned_at desc
 limit :most

-- name: audit
select id, at, actor, action, subject, details
  from duly_audit
 where (:subject is null or subject = :subject) and (:before is null or id < :before)
 order by id desc
 limit :most

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

-- name: overdue
-- Of the first so many items that are due since before then: by queue, how many, how many of the main lane, and the oldest.
select queue, count(*), count(*) filter (where lane = 'main'), min(due_at) as oldest
  from (select queue, lane, due_at
          from duly_item
         where state = 'waiting' and due_at < :before
         order by due_at
         limit :most) s
 group by queue

-- name: backlog
-- How much of these lines is due since before then: counts so many at most.
select count(*)
  from (select 1
          from json_each(:groups) g
          join duly_item i on i.queue = json_extract(g.value, '$.queue') and i.lane = json_extract(g.value, '$.lane')
                          and i.rank = json_extract(g.value, '$.rank') and i.task = json_extract(g.value, '$.task')
                          and coalesce(i.owner, '') = json_extract(g.value, '$.owner')
         where i.state = 'waiting' and i.due_at < :before
         limit :most) d

-- name: alive
insert into duly_worker (name, tasks, started_at, seen_at) values (:name, :tasks, :started_at, :now)
    on conflict (name) do update set seen_at = excluded.seen_at

-- name: gone
update duly_worker set seen_at = :now, left_at = :now where name = :name

-- name: forget_workers
delete from duly_worker where seen_at < :before and seen_at < (select max(seen_at) from duly_worker)

-- name: idle_meters
-- Meters that nobody set and under which nothing was granted since, by name, with when something was last.
select name, json_extract(hits, '$[#-1]') as at
  from duly_meter
 where name > :after and most is null and coalesce(json_extract(hits, '$[#-1]'), 0) < :before
 order by name
 limit :most

-- name: forget_meters
-- Those of these that are idle still.
delete from duly_meter
 where name in (select value from json_each(:names)) and most is null
   and coalesce(json_extract(hits, '$[#-1]'), 0) < :before

-- name: oldest_note
-- The earliest time among the first lines. Ids are in the order of time, but for what clocks do.
select min(at) as at from (select at from duly_audit order by id limit :most) f

-- name: forget_notes
-- The next portion of the audit log that is old enough.
delete from duly_audit
 where id in (select id from duly_audit order by id limit :most) and at < :before

-- name: workers
select name, tasks, started_at, seen_at
  from duly_worker
 where left_at is null and name > :after
 order by name
 limit :most

-- name: last_seen
select max(seen_at) as seen_at from duly_worker

-- name: alert
-- Whoever writes it first is the one to tell.
insert into duly_alert (name, since, message, details) values (:name, :now, :message, :details)
    on conflict (name) do update set message = excluded.message, details = excluded.details
returning (since = :now) as fresh

-- name: untold
-- Takes the alerts that nobody was told of; whoever took one and did not come back has had his time.
update duly_alert set telling_at = :now
 where told_at is null and (telling_at is null or telling_at < :before)
returning name, since, message, details

-- name: told
update duly_alert set told_at = :now where name = :name

-- name: over
delete from duly_alert where name = :name returning since, message

-- name: alerts
select name, since, message, details, told_at from duly_alert order by name

-- name: broken
select count(*) from duly_schedule where broken_at is not null

-- name: schema_version
select coalesce(max(version), 0) from duly_migration
