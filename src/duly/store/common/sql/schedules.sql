-- Recurrences: they join, are revised, make items and move on.

-- name: seats
select slot, members from duly_slot where ring = :ring

-- name: revise
-- What others write is left to them, and whose it is stays.
update duly_schedule
   set {set schedule but id, task, key, ring, last_item, last_success_at, last_error, unchanged, created_at, owner}
 where id = :id

-- name: declared
-- What code declared, once or still.
select id, task, key from duly_schedule where is_declared order by id

-- name: ring_rule
-- The rule of any member.
select rule from duly_schedule where ring = :ring order by slot, id limit 1

-- name: schedules
-- By id, keyset; with whatever filters are given.
select {schedule}
  from duly_schedule
 where id > :after
   and {given owner, task, ring, slot}
   and (:key::text is null or key = :key::text or key = owner || '/' || :key::text)
   and (:state::text is null or {schedule_state} = :state::text)
 order by id
 limit :most

-- name: schedule
select {schedule}
  from duly_schedule
 where task = :task and key = :key

-- name: schedules_standing
-- A page of the schedules of a task, by id, also by how they stand and by a part of their key.
select {schedule of s}
  from duly_schedule s
  left join duly_item i on i.id = s.last_item
 where s.id > :after and s.task = :task
   and (:owner::text is null or s.owner = :owner::text)
   and (:slot::int is null or s.slot = :slot::int)
   and (:is_active::boolean is null or (s.paused_at is null and s.broken_at is null) = :is_active::boolean)
   and (:text::text is null or lower(s.key) like lower(:text::text) escape '!')
   and (:standing::text is null or {standing} = :standing::text)
 order by s.id
 limit :most

-- name: standings
-- How many schedules of a task stand how, by slot, and whether they do so by an item that was planned since then.
select s.slot, {standing} as standing, s.paused_at is null and s.broken_at is null as is_active,
       coalesce(i.planned_at >= :since, false) as is_new, count(*) as members
  from duly_schedule s
  left join duly_item i on i.id = s.last_item
 where s.task = :task and (:owner::text is null or s.owner = :owner::text)
 group by 1, 2, 3, 4
 order by 1, 2, 3, 4

-- name: broken_by
-- How many schedules of a task were deactivated, by the class of the error that their last item ended with.
select i.error_class, count(*) as members
  from duly_schedule s
  left join duly_item i on i.id = s.last_item
 where s.broken_at is not null and s.task = :task and (:owner::text is null or s.owner = :owner::text)
 group by i.error_class
 order by 2 desc, 1
 limit :most

-- name: broken_ids
-- Those of a task, or any, that were deactivated after errors of this class, or any; class '' is for those whose item is gone.
select s.id
  from duly_schedule s
  left join duly_item i on i.id = s.last_item
 where s.broken_at is not null and (:task::text is null or s.task = :task::text) and (:owner::text is null or s.owner = :owner::text)
   and (:error_class::text is null or coalesce(i.error_class, '') = :error_class::text)
 order by s.id
 limit :most

-- name: tries_of_schedules
-- When tries of a task's scheduled items began since then, first tries and later ones, and how many at a time.
select started_at, is_retry, count(*) as tries
  from (select a.started_at, a.number > 1 as is_retry
          from duly_schedule s
          join duly_item i on i.schedule_id = s.id and i.planned_at >= :planned_since
          join duly_attempt a on a.item_id = i.id
         where s.task = :task and (:owner::text is null or s.owner = :owner::text) and a.started_at >= :since
        union all
        select i.started_at, i.attempt > 1
          from duly_schedule s
          join duly_item i on i.schedule_id = s.id and i.planned_at >= :planned_since
         where s.task = :task and (:owner::text is null or s.owner = :owner::text) and i.started_at >= :since
           and i.state in ('done', 'running')) t
 group by started_at, is_retry
 order by started_at, is_retry

-- name: retries_due
-- How many items of a task's schedules wait in the retry lane, by when they are due.
select i.due_at, count(*) as items
  from duly_schedule s
  join duly_item i on i.id = s.last_item
 where s.task = :task and (:owner::text is null or s.owner = :owner::text) and i.state = 'waiting' and i.lane = 'retry'
 group by i.due_at
 order by i.due_at

-- name: schedules_by_id
select id from duly_schedule where id > :after order by id limit :most

-- name: schedules_by_next
-- Those that come next first.
select id, next_at
  from duly_schedule
 where next_at is not null and (next_at, id) > (:after_at::timestamptz, :after_id::bigint)
 order by next_at, id
 limit :most

-- name: broken_schedules
select id from duly_schedule where broken_at is not null and id > :after order by id limit :most

-- name: own_schedules
-- Those of one owner. It asks for a range, and not for equality, because the order of such a range is that of one index.
select id
  from duly_schedule
 where owner <= :owner::text and (owner, id) > (:owner::text, :after::bigint)
 order by owner, id
 limit :most

-- name: own_schedules_by_next
-- Those of one owner that come next first.
select id, next_at
  from duly_schedule
 where owner = :owner and next_at is not null and (next_at, id) > (:after_at::timestamptz, :after_id::bigint)
 order by next_at, id
 limit :most

-- name: schedules_fitting
-- Those of these schedules that a filter means.
select {schedule}
  from duly_schedule
 where {id_given}
   and {given owner, task, ring, slot}
   and (:key::text is null or key = :key::text or key = owner || '/' || :key::text)
   and (:contains::text is null or lower(key) like lower(:contains::text) escape '!')
   and (:state::text is null or {schedule_state} = :state::text)

-- name: slots
select ring, slot, members from duly_slot where {given ring} order by ring, slot

-- name: occurrences
-- The items that a schedule made, newest first.
select {occurrence}
  from duly_item
 where schedule_id = :schedule_id
 order by planned_at desc
 limit :most

-- name: broken
select count(*) from duly_schedule where broken_at is not null

-- name: standing
-- Of the newest schedules: how many are active and paused; of all, how many are broken, counted up to a bound; how many
-- were looked at; when the next one of all is due; and in how many groups the first items in review are.
select count(*) filter (where broken_at is null and paused_at is null),
       count(*) filter (where broken_at is null and paused_at is not null),
       (select count(*) from (select 1 from duly_schedule where broken_at is not null order by id limit :most) b),
       count(*),
       (select next_at from duly_schedule where next_at is not null order by next_at, id limit 1) as next_at,
       (select count(distinct error_group)
          from (select error_group from duly_item where {in_review} limit :most) i)
  from (select broken_at, paused_at from duly_schedule order by id desc limit :most) s

-- name: own_standing
-- For an owner who has more schedules than are looked at: how many of the first broken ones of all are theirs, and when
-- the first of theirs is due among those of all that are due next.
select (select count(*)
          from (select owner from duly_schedule where broken_at is not null order by id limit :most) b
         where owner = :owner),
       (select min(next_at)
          from (select owner, next_at from duly_schedule where next_at is not null order by next_at, id limit :most) n
         where owner = :owner) as next_at

-- name: schedule_is_taken
-- The schedules of a task whose key a schedule of another task has.
select s.id
  from duly_schedule s
  join duly_schedule t on t.task = :new and t.key = s.key
 where s.task = :task

-- name: tasks_of_schedules
-- How many schedules of each task make items.
select task, count(*) as items from duly_schedule where next_at is not null group by task order by task
