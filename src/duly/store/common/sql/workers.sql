-- Who is alive, and what is wrong.

-- name: alive
insert into duly_worker (name, tasks, started_at, seen_at, migration, hindrance, runaways, ailing)
values (:name, :tasks::json, :started_at, :now, :migration, :hindrance, :runaways, :ailing::text)
    on conflict (name) do update
   set seen_at = excluded.seen_at, hindrance = excluded.hindrance, runaways = excluded.runaways,
       ailing = excluded.ailing

-- name: gone
update duly_worker set seen_at = :now, left_at = :now where name = :name

-- name: forget_workers
delete from duly_worker where seen_at < :before and seen_at < (select max(seen_at) from duly_worker)

-- name: workers
select {worker}
  from duly_worker
 where left_at is null and name > :after
 order by name
 limit :most

-- name: last_seen
select max(seen_at) as seen_at from duly_worker

-- name: untold
-- Takes the alerts that were not reported since then; an alert whose worker did not report it in time is taken again.
update duly_alert set telling_at = :now
 where (told_at is null or told_at <= :again) and (telling_at is null or telling_at < :before)
returning name, since, message, details, told_at

-- name: told
update duly_alert set told_at = :now where name = :name

-- name: over
delete from duly_alert where name = :name returning since, message

-- name: alerts
select {alert} from duly_alert order by name

-- name: waiting_tasks
-- Among the first items that wait, by when they are due: how many of each queue and task, and when the first was put.
select queue, task, count(*) as items, min(created_at) as put_at
  from (select queue, task, created_at
          from duly_item
         where {is_waiting}
         order by due_at
         limit :most) s
 group by queue, task
