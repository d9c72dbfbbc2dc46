-- How tries end, and what their ends mean for schedules.

-- name: settle_done
-- The common end, many at a time: plain successes of one claim.
with closed as (delete from duly_lease where fence = any(:closed::bigint[]))
update duly_item
   set state = 'done', outcome = 'done', finished_at = :finished_at,
       status = case when job_id is not null then 'DONE' end,
       changed_at = case when job_id is not null then :finished_at::timestamptz end
 where id = any(:ids::bigint[]) and fence = :fence and state = 'running'
returning id

-- name: settle_each_done
-- The same for items that each have a fence of their own. With "is true" the pairs are looked up in a hash: as a join
-- they may be compared each with each, for the planner knows neither how many they are nor how many items run.
with closed as (delete from duly_lease where fence = any(:closed::bigint[]))
update duly_item
   set state = 'done', outcome = 'done', finished_at = :finished_at,
       status = case when job_id is not null then 'DONE' end,
       changed_at = case when job_id is not null then :finished_at::timestamptz end
 where id = any(:ids::bigint[]) and state = 'running'
   and ((id, fence) in (select n.id, n.fence from unnest(:ids::bigint[], :fences::bigint[]) as n(id, fence))) is true
returning id, fence

-- name: settle
-- Applies each change if its item is still in the state and under the fence it was decided for.
with change as materialized (
    select * from {many change as c}),
settled as (
    update duly_item i
       set state = c.state, outcome = coalesce(c.outcome, i.outcome), lane = c.lane, due_at = c.due_at,
           rank = coalesce(c.rank, i.rank), attempt = c.attempt, failures = c.failures, crashes = c.crashes, losses = c.losses,
           excuses = c.excuses, cause = c.cause, finished_at = c.finished_at, result = c.result,
           status = coalesce(c.status, i.status), changed_at = coalesce(c.changed_at, i.changed_at),
           last_error = coalesce(c.error, i.last_error), error_class = coalesce(c.error_class, i.error_class),
           error_group = coalesce(c.error_group, i.error_group),
           streak = case when c.outcome = 'revived' then null else i.streak end,
           revivals = case when c.outcome = 'revived' then i.revivals + 1 else i.revivals end
      from change c
     where i.id = any(:change_id::bigint[]) and i.id = c.id and i.fence = c.fence and i.state = c.was
       and (c.expired_at is null
            or not exists (select from duly_lease l where l.fence = c.fence and l.lease_until >= c.expired_at))
       and (c.was_due_at is null or i.due_at = c.was_due_at) and (c.was_rank is null or i.rank = c.was_rank)
    returning i.id, i.fence),
tried as (
    insert into duly_attempt (item_id, fence, {tried})
    select t.item_id, t.fence, {tried of t}
      from {many tried with item_id bigint, fence bigint as t}
      join settled s on s.id = t.item_id and s.fence = t.fence),
closed as (delete from duly_lease where fence = any(:closed::bigint[]))
select id, fence from settled

-- name: lock_schedules
select id from duly_schedule where id = any(:ids::bigint[]) order by id for update

-- name: lock_rings
-- Transactions that change the load of several slots lock the first slot of each ring, so that they take turns.
select ring
  from duly_slot
 where slot = 0
   and ring = any(array(select s.ring from duly_schedule s where s.id = any(:ids::bigint[]) and s.ring is not null))
 order by ring
   for update

-- name: settle_members
-- What the ends of these tries mean for their schedules.
update duly_schedule s
   set failures = case when m.is_success then 0
                       when m.is_excused then least(s.failures, m.failures)
                       else greatest(s.failures + 1, m.failures) end,
       last_success_at = case when m.is_success then m.at else s.last_success_at end,
       last_error = case when m.is_success or m.is_excused then s.last_error else m.error end,
       broken_at = case when m.is_broken then coalesce(s.broken_at, m.at) else s.broken_at end,
       next_at = case when m.is_broken then null else s.next_at end,
       fingerprint = coalesce(m.fingerprint, s.fingerprint),
       unchanged = s.unchanged + m.is_unchanged::int,
       keep = coalesce(m.keep, s.keep)
  from {many member as m}
 where s.id = any(:member_schedule_id::bigint[]) and s.id = m.schedule_id
