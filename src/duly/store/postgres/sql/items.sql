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

-- name: late
-- What was started later than the grace period, latest first.
select i.id, i.task, i.queue, i.key, s.key as subject, i.state, i.planned_at,
       i.started_at, i.finished_at, extract(epoch from i.started_at - i.planned_at)::float8 as lateness
  from duly_item i
  left join duly_schedule s on s.id = i.schedule_id
 where i.state = 'done' and i.started_at > i.planned_at + :grace * interval '1 second'
 order by lateness desc
 limit :most

-- name: stuck
-- What is not done long after its time: due, running, given up, or tried in vain and waiting for the next try.
-- What waits for a source that is down is not stuck: there is an alert about that.
select i.id, i.task, i.queue, i.key, s.key as subject, i.state, i.planned_at,
       i.lane, i.due_at, i.attempt, i.last_error, extract(epoch from :now - i.planned_at)::float8 as age
  from duly_item i
  left join duly_schedule s on s.id = i.schedule_id
 where (i.is_waiting or i.in_review or i.state = 'running') and i.planned_at < :now - :grace * interval '1 second'
   and (i.state <> 'waiting' or i.due_at <= :now or i.attempt > 0)
   and (i.state <> 'waiting'
        or i.task not in (select t.task from duly_alert a, json_array_elements_text(a.details -> 'tasks') as t(task)
                           where a.name like 'source:%'))
 order by i.planned_at
 limit :most

-- name: drift
-- How many seconds after their time the items of a task were done since then, in steps of some seconds; only among the
-- newest rows, so that the cost is bounded. For an item that a person retried, the time of the retry counts.
select floor(extract(epoch from finished_at) / :step)::bigint * :step as second,
       avg(late)::float8 as mean_late, max(late)::float8 as most_late, count(*) as n
  from (select finished_at,
               greatest(extract(epoch from finished_at - case when attempt = 1 and revivals = 0
                                                              then planned_at else due_at end), 0) as late
          from duly_item
         where id > (select coalesce(max(id), 0) - :rows from duly_item)
           and task = :task and state = 'done' and finished_at >= :since and {given owner}) d
 group by 1
 order by 1

-- name: group_trends
-- In which hour since then the newest items of each of these groups were given up.
select g.value as error_group, floor(extract(epoch from i.finished_at - :since::timestamptz) / 3600)::int as hour, count(*)
  from json_array_elements_text(:groups::json) as g(value)
 cross join lateral (
       select finished_at, owner
         from duly_item
        where in_review and error_group >= g.value and (error_group, id) < (g.value, 9223372036854775807)
        order by error_group desc, id desc
        limit :most) i
 where i.finished_at >= :since::timestamptz and {given owner}
 group by 1, 2

-- name: with_live_twin
-- Those of these items whose key another live item has.
select i.id
  from duly_item i
 where i.{id_given}
   and exists (select 1 from duly_item t where t.task = i.task and t.live_key = i.key and t.live_key is not null and t.id <> i.id)

-- name: running_of_task
-- How many items of a task run.
select count(*)
  from duly_lease l
 cross join lateral unnest(l.items) as e(id)
  join duly_item i on i.id = e.id and i.fence = l.fence and i.state = 'running'
 where i.task = :task and {given owner}

-- name: key_is_taken
-- Those of these items that cannot become items of another task, because an item of that task has their key.
select i.id
  from duly_item i
 where i.{id_given}
   and (i.is_waiting and exists (select 1 from duly_item t where t.task = :task and t.live_key = i.key and t.live_key is not null)
        or i.version is not null
           and exists (select 1 from duly_item t where t.task = :task and t.key = i.key and t.version is not null))

-- name: retask_items
-- Gives these items another task, and another queue where one is given.
update duly_item i
   set task = :new, queue = coalesce(n.queue, i.queue), updated_at = :now
  from json_to_recordset(:rows::json) as n(id bigint, queue text)
 where i.id = n.id and i.task = :task and i.state in ('waiting', 'failed') and {given owner}
returning i.id
