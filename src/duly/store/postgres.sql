-- The statements of the PostgreSQL store, one per named section; sqlite.sql has the same names.
-- Each is one round trip and, on a connection in autocommit, one transaction. :name marks a parameter; the statements
-- that run on a caller's own connection say cast(… as …), which every driver's parser understands.

-- name: now
-- The only clock that counts.
select clock_timestamp()

-- name: put
-- Inserts what is new; an item whose key is live is left alone and not returned.
insert into duly_item (task, queue, args, planned_at, due_at, key, rank, max_attempts, trace, expires_at, owner)
select n.task, n.queue, n.args::json, coalesce(n.due_at, statement_timestamp()), coalesce(n.due_at, statement_timestamp()),
       n.key, n.rank, n.max_attempts, n.trace, n.expires_at, n.owner
  from unnest(:tasks::text[], :queues::text[], :args::text[], :due_ats::timestamptz[], :keys::text[],
              :ranks::smallint[], :max_attempts::int[], :traces::text[], :expires_ats::timestamptz[],
              :owners::text[])
       as n(task, queue, args, due_at, key, rank, max_attempts, trace, expires_at, owner)
    on conflict (task, live_key) where live_key is not null do nothing
returning id, cast(execution_key as text), task, key

-- name: put_one
-- The same for a single item, as cheap as a bare insert.
insert into duly_item (task, queue, args, planned_at, due_at, key, rank, max_attempts, trace, expires_at, owner)
values (:task, :queue, cast(:args as json), coalesce(cast(:due_at as timestamptz), statement_timestamp()),
        coalesce(cast(:due_at as timestamptz), statement_timestamp()), :key, :rank, :max_attempts, :trace,
        cast(:expires_at as timestamptz), cast(:owner as text))
    on conflict (task, live_key) where live_key is not null do nothing
returning id, cast(execution_key as text), task, key

-- name: put_one_and_tell
-- A put that wakes idle workers at its commit.
with placed as (
    insert into duly_item (task, queue, args, planned_at, due_at, key, rank, max_attempts, trace, expires_at, owner)
    values (:task, :queue, cast(:args as json), coalesce(cast(:due_at as timestamptz), statement_timestamp()),
            coalesce(cast(:due_at as timestamptz), statement_timestamp()), :key, :rank, :max_attempts, :trace,
        cast(:expires_at as timestamptz), cast(:owner as text))
        on conflict (task, live_key) where live_key is not null do nothing
    returning id, cast(execution_key as text) as execution_key, task, key)
select p.id, p.execution_key, p.task, p.key, pg_notify('duly', :news) from placed p

-- name: load
copy duly_item (task, queue, args, planned_at, due_at, key, rank, max_attempts, trace, expires_at, owner) from stdin

-- name: tell
select pg_notify('duly', n.news) from unnest(:news::text[]) as n(news)

-- name: live
-- Who holds this key now.
select id, cast(execution_key as text), cast(args as text), planned_at
  from duly_item
 where task = :task and live_key = :key and live_key is not null

-- name: arm_find
-- Whose keys these are for good, locked in the order of ids.
select id, key, version, args, state, (state in ('waiting', 'running') and started_at is not null) as is_begun
  from duly_item
 where task = :task and key = any(:keys::text[]) and version is not null
 order by id
   for update

-- name: versioned
-- Who has a key for good that begins like this, the newest first.
select id from duly_item
 where task = :task and version is not null and key >= :low and key < :high
 order by id desc
 limit 500

-- name: arm_new
-- Inserts what is new; a key that someone took meanwhile is left alone and not returned.
insert into duly_item (task, queue, args, planned_at, due_at, key, rank, max_attempts, trace, version)
select :task, n.queue, n.args::json, coalesce(n.due_at, statement_timestamp()),
       coalesce(n.due_at, statement_timestamp()), n.key, n.rank, n.max_attempts, n.trace, n.version
  from unnest(:queues::text[], :args::text[], :due_ats::timestamptz[], :keys::text[], :ranks::smallint[],
              :max_attempts::int[], :traces::text[], :versions::bigint[])
       as n(queue, args, due_at, key, rank, max_attempts, trace, version)
    on conflict do nothing
returning id, key

-- name: arm_leave
-- The try that a newer version leaves behind, ended or under way, for the item's story.
insert into duly_attempt (item_id, number, fence, attempt_key, worker, started_at, ended_at, outcome)
select id, attempt, fence,
       format('%s-%s-%s', id, attempt, case when fence < 4294967296 then lpad(to_hex(fence), 8, '0') else to_hex(fence) end),
       claimed_by, started_at, coalesce(finished_at, statement_timestamp()),
       case when state = 'running' then 'superseded' else outcome end
  from duly_item
 where id = any(:ids::bigint[]) and state in ('running', 'done')
    on conflict do nothing

-- name: arm_again
-- A row begins anew. A try of it that is still under way has its result refused, for the item waits again.
update duly_item i
   set state = 'waiting', lane = 'main', outcome = 'armed', queue = n.queue, args = n.args::json, rank = n.rank,
       planned_at = coalesce(n.due_at, statement_timestamp()), due_at = coalesce(n.due_at, statement_timestamp()),
       max_attempts = n.max_attempts, trace = n.trace, version = n.version, attempt = 0, failures = 0, crashes = 0,
       losses = 0, revivals = 0, result = null, progress = null, started_at = null, finished_at = null,
       last_error = null, error_class = null, error_group = null, updated_at = statement_timestamp()
  from unnest(:ids::bigint[], :queues::text[], :args::text[], :due_ats::timestamptz[], :ranks::smallint[],
              :max_attempts::int[], :traces::text[], :versions::bigint[])
       as n(id, queue, args, due_at, rank, max_attempts, trace, version)
 where i.id = n.id

-- name: survey
-- The earliest waiting item of each open queue, lane and rank: hops from group to group along the index, so its cost
-- is the number of groups, not of rows.
with recursive head as (
    (select queue, lane, rank, due_at
       from duly_item
      where is_waiting
      order by queue, lane, rank, due_at
      limit 1)
    union all
    select n.queue, n.lane, n.rank, n.due_at
      from head h
     cross join lateral (
           select i.queue, i.lane, i.rank, i.due_at
             from duly_item i
            where i.is_waiting and (i.queue, i.lane, i.rank) > (h.queue, h.lane, h.rank)
            order by i.queue, i.lane, i.rank, i.due_at
            limit 1) n)
select h.queue, h.lane, h.rank, h.due_at
  from head h
 where not exists (select from duly_queue q where q.name = h.queue and q.paused_at is not null)
 limit :most

-- name: claim
-- Takes due items share by share, best rank first, under one new fence; rows that another claim has locked are passed
-- over. The rows are locked here, so their places (ctid) hold until the update, which finds them there without an index.
with picked as materialized (
    select array_agg(due.id) as ids, array_agg(due.ctid) as places
      from unnest(:queues::text[], :lanes::text[], :limits::int[], :places::int[]) as s(queue, lane, quota, place)
     cross join lateral (
           select ranked.id, ranked.ctid
             from unnest(:rank_places::int[], :ranks::smallint[], :floors::timestamptz[]) as r(place, rank, since)
            cross join lateral (
                  select i.id, i.ctid
                    from duly_item i
                   where i.is_waiting
                     and i.queue = s.queue and i.lane = s.lane and i.rank = r.rank
                     and i.due_at between r.since and :now
                     and i.task = any(:tasks::text[])
                   order by i.due_at, i.id
                   limit s.quota
                     for update skip locked) ranked
            where r.place = s.place
            limit s.quota) due
     where not exists (select from duly_queue q where q.name = s.queue and q.paused_at is not null)),
lease as (
    insert into duly_lease (worker, lease_until, items)
    select :worker, :lease_until, ids from picked where ids is not null
    returning fence)
update duly_item
   set state = 'running', attempt = attempt + 1, fence = (select fence from lease), claimed_by = :worker,
       started_at = :now, progress = null
 where ctid = any((select places from picked)::tid[])
returning id, task, queue, lane, rank, planned_at, due_at, key, execution_key::text, args, attempt, max_attempts,
          failures, crashes, losses, fence, trace, schedule_id, streak, fingerprint, expires_at, revivals

-- name: extend
-- Prolongs the leases that nobody has taken over; returns the items that are no longer this worker's.
with kept as (
    update duly_lease
       set lease_until = :lease_until
     where fence = any(:fences::bigint[])
    returning fence)
select h.id
  from unnest(:ids::bigint[], :item_fences::bigint[]) as h(id, fence)
  left join duly_item i on i.id = h.id and i.id = any(:ids::bigint[]) and i.fence = h.fence and i.state = 'running'
  left join kept k on k.fence = h.fence
 where i.id is null or k.fence is null

-- name: settle_done
-- The common end, many at a time: plain successes of one claim.
with closed as (delete from duly_lease where fence = any(:closed::bigint[]))
update duly_item
   set state = 'done', outcome = 'done', finished_at = :finished_at
 where id = any(:ids::bigint[]) and fence = :fence and state = 'running'
returning id

-- name: settle
-- Applies each change if its item is still in the state and under the fence it was decided for.
with change as materialized (
    select *
      from unnest(:ids::bigint[], :was::text[], :fences::bigint[], :states::text[], :outcomes::text[], :lanes::text[],
                  :due_ats::timestamptz[], :attempts::int[], :failures::int[], :crashes::int[], :losses::int[],
                  :finished_ats::timestamptz[], :results::text[], :errors::text[], :error_classes::text[],
                  :expired_ats::timestamptz[], :ranks::smallint[], :error_groups::text[])
           as c(id, was, fence, state, outcome, lane, due_at, attempt, failures, crashes, losses, finished_at, result,
                error, error_class, expired_at, rank, error_group)),
settled as (
    update duly_item i
       set state = c.state, outcome = coalesce(c.outcome, i.outcome), lane = c.lane, due_at = c.due_at,
           rank = coalesce(c.rank, i.rank), attempt = c.attempt, failures = c.failures, crashes = c.crashes, losses = c.losses,
           finished_at = c.finished_at, result = c.result::json,
           last_error = coalesce(c.error, i.last_error), error_class = coalesce(c.error_class, i.error_class),
           error_group = coalesce(c.error_group, i.error_group),
           streak = case when c.outcome = 'revived' then null else i.streak end,
           revivals = case when c.outcome = 'revived' then i.revivals + 1 else i.revivals end
      from change c
     where i.id = any(:ids::bigint[]) and i.id = c.id and i.fence = c.fence and i.state = c.was
       and (c.expired_at is null
            or not exists (select from duly_lease l where l.fence = c.fence and l.lease_until >= c.expired_at))
    returning i.id, i.fence),
tried as (
    insert into duly_attempt (item_id, number, fence, attempt_key, worker, started_at, ended_at, outcome, error,
                              error_class)
    select t.*
      from unnest(:tried_ids::bigint[], :numbers::int[], :tried_fences::bigint[], :attempt_keys::text[],
                  :workers::text[], :started_ats::timestamptz[], :ended_ats::timestamptz[], :tried_outcomes::text[],
                  :tried_errors::text[], :tried_classes::text[])
           as t(id, number, fence, attempt_key, worker, started_at, ended_at, outcome, error, error_class)
      join settled s on s.id = t.id and s.fence = t.fence),
closed as (delete from duly_lease where fence = any(:closed::bigint[]))
select id, fence from settled

-- name: lock_schedules
select id from duly_schedule where id = any(:ids::bigint[]) order by id for update

-- name: lock_rings
-- Whoever changes the load of several slots takes turns with the others at their rings' first slots.
select ring
  from duly_slot
 where slot = 0
   and ring = any(array(select s.ring from duly_schedule s where s.id = any(:ids::bigint[]) and s.ring is not null))
 order by ring
   for update

-- name: settle_members
-- What the ends of these tries mean for their schedules.
update duly_schedule s
   set failures = case when m.is_success then 0 else greatest(s.failures + 1, m.failures) end,
       last_success_at = case when m.is_success then m.at else s.last_success_at end,
       last_error = case when m.is_success then s.last_error else m.error end,
       broken_at = case when m.is_broken then coalesce(s.broken_at, m.at) else s.broken_at end,
       next_at = case when m.is_broken then null else s.next_at end,
       fingerprint = coalesce(m.fingerprint, s.fingerprint),
       unchanged = s.unchanged + m.is_unchanged::int,
       keep = coalesce(m.keep::json, s.keep)
  from unnest(:ids::bigint[], :failures::int[], :ats::timestamptz[], :errors::text[], :successes::bool[],
              :breaks::bool[], :unchanged::bool[], :fingerprints::text[], :keeps::text[])
       as m(id, failures, at, error, is_success, is_broken, is_unchanged, fingerprint, keep)
 where s.id = any(:ids::bigint[]) and s.id = m.id

-- name: note
-- The transaction has a number before it takes an id: whoever follows the log knows by it what is still to come.
insert into duly_audit (at, actor, action, subject, details)
select n.at, n.actor, n.action, n.subject, n.details::json
  from unnest(:ats::timestamptz[], :actors::text[], :actions::text[], :subjects::text[], :details::text[])
       as n(at, actor, action, subject, details)
 where pg_current_xact_id() is not null

-- name: meters
-- Locks these meters, always in the same order.
select name, most, per, hits from duly_meter where name = any(:names::text[]) order by name for update

-- name: new_meters
insert into duly_meter (name) select n from unnest(:names::text[]) n order by n on conflict (name) do nothing

-- name: under_way
-- How many leases stand under each of these meters.
select m, count(*) from duly_lease l cross join unnest(l.meters) m where m = any(:names::text[]) group by m

-- name: hit
update duly_meter m
   set hits = array(select value::timestamptz from json_array_elements_text(:hits::json) with ordinality h(value, place)
                     order by place)
 where name = :name

-- name: hold
update duly_lease set meters = :names::text[] where fence = :fence

-- name: set_meter
insert into duly_meter (name, most, per) values (:name, :most, :per)
    on conflict (name) do update set most = excluded.most, per = excluded.per

-- name: all_meters
select name, most, per, hits from duly_meter where name > :after order by name limit :most

-- name: enroll
insert into duly_schedule (task, key, queue, args, rule, zone, next_at, rank, catch_up, max_lateness, overlap, ring, slot,
                           is_declared, owner)
select n.task, n.key, n.queue, n.args::json, n.rule, n.zone, n.next_at, n.rank, n.catch_up, n.max_lateness, n.overlap,
       n.ring, n.slot, n.is_declared, n.owner
  from unnest(:tasks::text[], :keys::text[], :queues::text[], :args::text[], :rules::text[], :zones::text[],
              :next_ats::timestamptz[], :ranks::smallint[], :catch_ups::text[], :max_latenesses::float8[],
              :overlaps::text[], :rings::text[], :slots::int[], :declared::bool[], :owners::text[])
       as n(task, key, queue, args, rule, zone, next_at, rank, catch_up, max_lateness, overlap, ring, slot, is_declared,
            owner)
    on conflict (task, key) do nothing
returning id, task, key

-- name: taken
-- Which of these keys have a schedule.
select s.id, n.task, n.key
  from unnest(:tasks::text[], :keys::text[]) as n(task, key)
 cross join lateral (select id from duly_schedule where task = n.task and key = n.key limit 1) s

-- name: open_ring
insert into duly_slot (ring, slot) values (:ring, 0) on conflict (ring, slot) do nothing

-- name: lock_ring
-- Joins to a ring take turns at its first slot.
select slot from duly_slot where ring = :ring and slot = 0 for update

-- name: seats
select slot, members from duly_slot where ring = :ring

-- name: due_schedules
select id, task, key, queue, rank, args, rule, zone, catch_up, max_lateness, overlap, ring, slot, is_declared, next_at,
       paused_at, broken_at, failures, last_at, last_item, last_success_at, last_error, fingerprint, unchanged, skipped,
       keep, created_at
  from duly_schedule
 where next_at between :since and :now and not id = any(:seen::bigint[])
 order by next_at, id
 limit :most
   for update skip locked

-- name: some_schedules
select id, task, key, queue, rank, args, rule, zone, catch_up, max_lateness, overlap, ring, slot, is_declared, next_at,
       paused_at, broken_at, failures, last_at, last_item, last_success_at, last_error, fingerprint, unchanged, skipped,
       keep, created_at
  from duly_schedule
 where id = any(:ids::bigint[])
 order by id
   for update

-- name: occur
-- Makes items of occurrences, in this order.
insert into duly_item (task, queue, args, planned_at, due_at, rank, schedule_id, streak, fingerprint, expires_at, owner)
select s.task, s.queue, s.args, o.at, o.at, s.rank, s.id, s.failures, s.fingerprint,
       o.at + s.max_lateness * interval '1 second', s.owner
  from unnest(:made_ids::bigint[], :ats::timestamptz[]) with ordinality as o(id, at, place)
  join duly_schedule s on s.id = o.id and s.id = any(:made_ids::bigint[])
 order by o.place
    on conflict (schedule_id, planned_at) where schedule_id is not null do nothing
returning schedule_id, id

-- name: move_on
update duly_schedule s
   set next_at = a.next_at, last_at = a.last_at, skipped = a.skipped, last_item = coalesce(a.last_item, s.last_item)
  from unnest(:ids::bigint[], :next_ats::timestamptz[], :last_ats::timestamptz[], :skipped::bigint[],
              :last_items::bigint[])
       as a(id, next_at, last_at, skipped, last_item)
 where s.id = any(:ids::bigint[]) and s.id = a.id

-- name: revise
update duly_schedule
   set queue = :queue, rank = :rank, args = :args::json, rule = :rule, zone = :zone, catch_up = :catch_up,
       max_lateness = :max_lateness, overlap = :overlap, slot = :slot, is_declared = :is_declared, next_at = :next_at,
       paused_at = :paused_at, broken_at = :broken_at, failures = :failures, last_at = :last_at, skipped = :skipped,
       keep = :keep::json, fingerprint = :fingerprint
 where id = :id

-- name: remove_schedules
delete from duly_schedule where id = any(:ids::bigint[])

-- name: declared
-- What code declared, once or still.
select id, task, key from duly_schedule where is_declared order by id

-- name: ring_rule
-- The rule of any member.
select rule from duly_schedule where ring = :ring order by slot, id limit 1

-- name: next_schedule
select min(next_at) as next_at from duly_schedule where next_at is not null

-- name: close
delete from duly_lease where fence = any(:closed::bigint[])

-- name: progress
update duly_item set progress = :progress::json where id = :id and fence = :fence and state = 'running'

-- name: expired
-- Items whose lease ran out, and (with no item) leases that ran out with nothing left to rescue.
select l.fence, i.id, i.task, i.queue, i.lane, i.rank, i.planned_at, i.due_at, i.key, i.execution_key::text,
       i.args, i.attempt, i.max_attempts, i.failures, i.crashes, i.losses, i.trace, i.claimed_by, i.started_at,
       i.schedule_id, i.streak, i.fingerprint, i.expires_at, i.revivals
  from (select fence, items from duly_lease where lease_until < :now order by lease_until limit :most) l
  left join lateral (
       select * from duly_item i where i.id = any(l.items) and i.fence = l.fence and i.state = 'running') i
    on true

-- name: fetch
select id, task, queue, lane, rank, state, planned_at, due_at, key, execution_key::text, args, attempt,
       max_attempts, failures, crashes, losses, fence, claimed_by, started_at, trace, schedule_id, streak,
       fingerprint, expires_at, revivals
  from duly_item
 where id = any(:ids::bigint[])

-- name: waiting_of
-- What waits of these schedules.
select id, task, queue, lane, rank, state, planned_at, due_at, key, execution_key::text, args, attempt,
       max_attempts, failures, crashes, losses, fence, claimed_by, started_at, trace, schedule_id, streak,
       fingerprint, expires_at, revivals
  from duly_item
 where schedule_id = any(:ids::bigint[]) and state = 'waiting'
   for update

-- name: lock_waiting
-- Those of these items that wait: until the end of the transaction nobody can claim them.
select id from duly_item where id = any(:ids::bigint[]) and state = 'waiting' order by id for update

-- name: prune
-- Looks at the next rows by id and forgets those that finished long enough ago; review waits for a person. Answers how
-- many are gone and where to go on: nowhere once rows are younger than what is to be forgotten.
with looked as materialized (
    select id, state, finished_at, created_at from duly_item where id > :after order by id limit :most),
gone as (
    delete from duly_item
     where id = any(array(
           select id from looked where state in ('done', 'cancelled') and finished_at < :before))
       -- still: it may be revived while this waits for its lock
       and state in ('done', 'cancelled')
    returning id)
select (select count(*) from gone),
       case when (select count(*) from looked) = :most and (select max(created_at) from looked) < :before
            then (select max(id) from looked) end

-- name: pause
insert into duly_queue (name, paused_at) values (:queue, :now)
    on conflict (name) do update set paused_at = coalesce(duly_queue.paused_at, excluded.paused_at)

-- name: is_queue
-- Whether anything has this name, or one below it: what waits, runs, is in review or comes again, or was put lately.
select case
         when exists (select 1 from duly_item where is_waiting and queue = :queue) then true
         when exists (select 1 from duly_item
                       where is_waiting and queue > :queue::text || '/' and queue < :queue::text || '0') then true
         when exists (select 1 from (select queue from duly_item order by id desc limit 10000) i
                       where i.queue = :queue) then true
         when exists (select 1 from duly_schedule where queue = :queue) then true
         when exists (select 1 from duly_lease l
                      cross join lateral unnest(l.items) as e(id)
                       join duly_item i on i.id = e.id
                       where i.queue = :queue) then true
         else exists (select 1 from duly_item where in_review and queue = :queue)
       end as is_there

-- name: resume
update duly_queue set paused_at = null where name = :queue

-- name: page
-- Newest first, keyset on id.
select id, task, queue, lane, rank, state, outcome, planned_at, due_at, key, execution_key::text, args,
       result, progress, attempt, max_attempts, failures, crashes, losses, fence, claimed_by, started_at,
       finished_at, last_error, error_class, created_at
  from duly_item
 where (:before::bigint is null or id < :before::bigint)
   and (:state::text is null or state = :state::text)
   and (:task::text is null or task = :task::text)
   and (:queue::text is null or queue = :queue::text)
   and (:key::text is null or key = :key::text)
 order by id desc
 limit :most

-- name: show
select i.id, i.task, i.queue, i.lane, i.rank, i.state, i.outcome, i.planned_at, i.due_at, i.key,
       i.execution_key::text, i.args, i.result, i.progress, i.attempt, i.max_attempts, i.failures,
       i.crashes, i.losses, i.fence, i.claimed_by, i.started_at, i.finished_at, i.last_error, i.error_class,
       i.created_at, l.lease_until
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
         where is_waiting
         group by queue, lane, state
        union all
        select i.queue, i.lane, i.state, count(*), 0, min(i.started_at)
          from duly_lease l
         cross join lateral unnest(l.items) as e(id)
          join duly_item i on i.id = e.id and i.fence = l.fence and i.state = 'running'
         group by i.queue, i.lane, i.state
        union all
        select queue, 'main', state, count(*), 0, min(finished_at)
          from duly_item
         where in_review
         group by queue, state) w
  left join duly_queue q on q.name = w.queue
union all
select q.name, 'main', 'waiting', 0, 0, null, true
  from duly_queue q
 where q.paused_at is not null
   and not exists (select from duly_item i where i.queue = q.name and i.is_waiting)

-- name: schedules
-- By id, keyset; with whatever filters are given.
select id, task, key, queue, rank, args, rule, zone, catch_up, max_lateness, overlap, ring, slot, is_declared, next_at,
       paused_at, broken_at, failures, last_at, last_item, last_success_at, last_error, fingerprint, unchanged, skipped,
       keep, created_at
  from duly_schedule
 where id > :after
   and (:task::text is null or task = :task::text)
   and (:key::text is null or key = :key::text)
   and (:ring::text is null or ring = :ring::text)
   and (:slot::int is null or slot = :slot::int)
   and (:state::text is null
        or case when broken_at is not null then 'broken' when paused_at is not null then 'paused' else 'active' end
           = :state::text)
 order by id
 limit :most

-- name: schedule
select id, task, key, queue, rank, args, rule, zone, catch_up, max_lateness, overlap, ring, slot, is_declared, next_at,
       paused_at, broken_at, failures, last_at, last_item, last_success_at, last_error, fingerprint, unchanged, skipped,
       keep, created_at
  from duly_schedule
 where (id = :id::bigint) or (task = :task::text and key = :key::text)

-- name: schedules_with_ids
select id, task, key, queue, rank, args, rule, zone, catch_up, max_lateness, overlap, ring, slot, is_declared, next_at,
       paused_at, broken_at, failures, last_at, last_item, last_success_at, last_error, fingerprint, unchanged, skipped,
       keep, created_at
  from duly_schedule
 where id = any(array(select value::bigint from json_array_elements_text(:ids::json)))
 order by id

-- name: slots
select ring, slot, members from duly_slot where :ring::text is null or ring = :ring::text order by ring, slot

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
 where (:subject::text is null or subject = :subject::text) and (:before::bigint is null or id < :before::bigint)
 order by id desc
 limit :most

-- name: write_note
-- The same for one.
insert into duly_audit (at, actor, action, subject, details)
select :now::timestamptz, :actor::text, :action::text, :subject::text, :details::json
 where pg_current_xact_id() is not null

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

-- name: overdue
-- The first so many items that are due since before then, whatever their queue: how many there are, how many of them are of
-- the main lane of an open queue, and the oldest of an open queue.
select count(*), count(*) filter (where p.name is null and s.lane = 'main') as late,
       min(s.due_at) filter (where p.name is null) as oldest
  from (select queue, lane, due_at
          from duly_item
         where is_waiting and due_at < :before
         order by due_at
         limit :most) s
  left join duly_queue p on p.name = s.queue and p.paused_at is not null

-- name: heads_after
-- The groups behind this one, so many at most: the earliest waiting item of each, and whether its queue is paused.
with recursive head as (
    (select queue, lane, rank, due_at
       from duly_item
      where is_waiting and (queue, lane, rank) > (:queue, :lane, :rank::smallint)
      order by queue, lane, rank, due_at
      limit 1)
    union all
    select n.queue, n.lane, n.rank, n.due_at
      from head h
     cross join lateral (
           select i.queue, i.lane, i.rank, i.due_at
             from duly_item i
            where i.is_waiting and (i.queue, i.lane, i.rank) > (h.queue, h.lane, h.rank)
            order by i.queue, i.lane, i.rank, i.due_at
            limit 1) n)
select h.queue, h.lane, h.rank, h.due_at, (q.paused_at is not null) as paused
  from (select * from head limit :most) h
  left join duly_queue q on q.name = h.queue

-- name: backlog
-- How much of these groups is due since before then: counts so many at most.
select count(*)
  from (select 1
          from json_to_recordset(:groups::json) as g(queue text, lane text, rank smallint)
         cross join lateral (
               select from duly_item i
                where i.is_waiting and i.queue = g.queue and i.lane = g.lane and i.rank = g.rank and i.due_at < :before
                limit :most) late
         limit :most) d

-- name: alive
insert into duly_worker (name, tasks, started_at, seen_at) values (:name, :tasks::json, :started_at, :now)
    on conflict (name) do update set seen_at = excluded.seen_at

-- name: gone
update duly_worker set seen_at = :now, left_at = :now where name = :name

-- name: forget_workers
delete from duly_worker where seen_at < :before and seen_at < (select max(seen_at) from duly_worker)

-- name: forget_meters
-- Meters that have counted nothing for long, and that nobody set.
delete from duly_meter
 where most is null and name not like 'window:%' and (cardinality(hits) = 0 or hits[cardinality(hits)] < :before)

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
insert into duly_alert (name, since, message, details) values (:name, :now, :message, :details::json)
    on conflict (name) do update set message = excluded.message, details = excluded.details
returning (xmax = 0) as fresh

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
