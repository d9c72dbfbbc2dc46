-- Who is alive, and what is wrong.

-- name: alert
-- The worker that inserts the row reports the alert.
insert into duly_alert (name, since, message, details) values (:name, :now, :message, :details::json)
    on conflict (name) do update set message = excluded.message, details = excluded.details
returning (xmax = 0) as fresh

-- name: source_down
-- A source is down. If that is known, nothing is written; if it had been back for a while, it is reported again.
insert into duly_alert (name, since, message, details) values (:name, :now, :message, :details::json)
    on conflict (name) do update
   set since = excluded.since, message = excluded.message, details = excluded.details, told_at = null, telling_at = null
 where duly_alert.details ->> 'backAt' is not null
returning name

-- name: source_back
-- The worker that changes the row logs it.
update duly_alert set message = :message, details = :details::json
 where name = :name and details ->> 'backAt' is null
returning name

-- name: source_over
-- Deletes the alert about a source that is back, unless it is down again.
delete from duly_alert where name = :name and details ->> 'backAt' is not null returning name

-- name: runs
-- What runs: of each worker, how many items, and those that have run for longest.
select worker, running, id, task, key, started_at
  from (select l.worker, i.id, i.task, i.key, i.started_at,
               count(*) over (partition by l.worker) as running,
               row_number() over (partition by l.worker order by i.started_at, i.id) as place
          from duly_lease l
         cross join lateral unnest(l.items) as e(id)
          join duly_item i on i.id = e.id and i.fence = l.fence and i.state = 'running') r
 where place <= :most
 order by worker, place
