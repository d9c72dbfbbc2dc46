-- Items by id and in pages, as the engine and as people see them; what is old is forgotten.

-- name: fetch
select {item}
  from duly_item
 where id in (select value from json_each(:ids))

-- name: old
-- The next rows by id, with when they finished if they may be forgotten: rows of a job stay as long as their job.
select id, case when state in ('done', 'cancelled') and job_id is null then finished_at end as finished_at, created_at
  from duly_item
 where id > :after
 order by id
 limit :most

-- name: prune
-- Forgets what has come to its end; review waits for a person.
delete from duly_item
 where id in (select value from json_each(:ids))
   and state in ('done', 'cancelled')

-- name: late
-- What was started later than the grace period, latest first.
select i.id, i.task, i.queue, i.key, s.key as subject, i.state, i.planned_at,
       i.started_at, i.finished_at, (i.started_at - i.planned_at) / 1e6 as lateness
  from duly_item i
  left join duly_schedule s on s.id = i.schedule_id
 where i.state = 'done' and i.started_at > i.planned_at + :grace * 1000000
 order by lateness desc
 limit :most

-- name: stuck
-- What is not done long after its time: due, running, given up, or tried in vain and waiting for the next try.
-- What waits for a source that is down is not stuck: there is an alert about that.
select i.id, i.task, i.queue, i.key, s.key as subject, i.state, i.planned_at,
       i.lane, i.due_at, i.attempt, i.last_error, (:now - i.planned_at) / 1e6 as age
  from duly_item i
  left join duly_schedule s on s.id = i.schedule_id
 where i.state in ('waiting', 'failed', 'running') and i.planned_at < :now - :grace * 1000000
   and (i.state <> 'waiting' or i.due_at <= :now or i.attempt > 0)
   and (i.state <> 'waiting'
        or i.task not in (select t.value from duly_alert a, json_each(a.details, '$.tasks') t where a.name like 'source:%'))
 order by i.planned_at
 limit :most

-- name: drift
-- How many seconds after their time the items of a task were done since then, in steps of some seconds; only among the
-- newest rows, so that the cost is bounded. For an item that a person retried, the time of the retry counts.
select finished_at / 1000000 / :step * :step as second, avg(late) as mean_late, max(late) as most_late, count(*) as n
  from (select finished_at,
               max(finished_at - case when attempt = 1 and revivals = 0 then planned_at else due_at end, 0) / 1e6 as late
          from duly_item
         where id > (select coalesce(max(id), 0) - :rows from duly_item)
           and task = :task and state = 'done' and finished_at >= :since and {given owner})
 group by 1
 order by 1

-- name: group_trends
-- In which hour since then the newest items of each of these groups were given up.
select g.value as error_group, (i.finished_at - :since) / 3600000000 as hour, count(*)
  from json_each(:groups) g
 cross join duly_item i
 where i.id in (select r.id
                  from duly_item r
                 where r.state = 'failed' and r.error_group = g.value
                 order by r.id desc
                 limit :most)
   and i.finished_at >= :since and {given owner}
 group by 1, 2

-- name: with_live_twin
-- Those of these items whose key another live item has.
select i.id
  from duly_item i
 where i.{id_given}
   and exists (select 1 from duly_item t where t.task = i.task and t.key = i.key and t.key is not null and t.state in ('waiting', 'running') and t.id <> i.id)

-- name: running_of_task
-- How many items of a task run.
select count(*)
  from duly_lease l
  join json_each(l.items) e
  join duly_item i on i.id = e.value and i.fence = l.fence and i.state = 'running'
 where i.task = :task and {given owner}

-- name: key_is_taken
-- Those of these items that cannot become items of another task, because an item of that task has their key.
select i.id
  from duly_item i
 where i.{id_given}
   and (i.state = 'waiting'
        and exists (select 1 from duly_item t
                     where t.task = :task and t.key = i.key and t.key is not null and t.state in ('waiting', 'running'))
        or i.version is not null
           and exists (select 1 from duly_item t where t.task = :task and t.key = i.key and t.version is not null))

-- name: retask_items
-- Gives these items another task, and another queue where one is given.
update duly_item
   set task = :new, queue = coalesce(n.value ->> 'queue', queue), updated_at = :now
  from json_each(:rows) n
 where duly_item.id = n.value ->> 'id' and task = :task and state in ('waiting', 'failed') and {given owner}
returning id
