-- Who is alive, and what is wrong.

-- name: alert
-- The worker that inserts the row reports the alert.
insert into duly_alert (name, since, message, details) values (:name, :now, :message, :details)
    on conflict (name) do update set message = excluded.message, details = excluded.details
returning (since = :now) as fresh

-- name: source_down
-- A source is down. If that is known, nothing is written; if it had been back for a while, it is reported again.
insert into duly_alert (name, since, message, details) values (:name, :now, :message, :details)
    on conflict (name) do update
   set since = excluded.since, message = excluded.message, details = excluded.details, told_at = null, telling_at = null
 where json_extract(duly_alert.details, '$.backAt') is not null
returning name

-- name: source_back
-- The worker that changes the row logs it.
update duly_alert set message = :message, details = :details
 where name = :name and json_extract(details, '$.backAt') is null
returning name

-- name: source_over
-- Deletes the alert about a source that is back, unless it is down again.
delete from duly_alert where name = :name and json_extract(details, '$.backAt') is not null returning name

-- name: runs
-- What runs: of each worker, how many items, and those that have run for longest.
select worker, running, id, task, key, started_at
  from (select l.worker, i.id, i.task, i.key, i.started_at,
               count(*) over (partition by l.worker) as running,
               row_number() over (partition by l.worker order by i.started_at, i.id) as place
          from duly_lease l
          join json_each(l.items) e
          join duly_item i on i.id = e.value and i.fence = l.fence and i.state = 'running') r
 where place <= :most
 order by worker, place

-- name: served_tasks
-- The tasks that workers have reported: when one with it reported last, and one of those that did not sign off; and
-- since when there has been a worker that reported since then.
select t.value as task, max(w.seen_at) as seen_at, max(case when w.left_at is null then w.seen_at end) as alive_at,
       (select min(started_at) from duly_worker where left_at is null and seen_at >= :alive) as began_at
  from duly_worker w
  join json_each(w.tasks) t
 group by t.value

-- name: waiting_in_lines
-- Of each task, how many items wait in these lines, counted up to a bound, and when the first of them was put.
select task, count(*) as items, min(created_at) as put_at
  from (select i.task, i.created_at
          from json_each(:groups) g
          join duly_item i on i.queue = json_extract(g.value, '$.queue') and i.lane = json_extract(g.value, '$.lane')
                          and i.rank = json_extract(g.value, '$.rank') and i.task = json_extract(g.value, '$.task')
                          and coalesce(i.owner, '') = json_extract(g.value, '$.owner')
         where i.state = 'waiting'
         limit :most) w
 group by task
