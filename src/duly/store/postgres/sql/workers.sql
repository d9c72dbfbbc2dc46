-- Who is alive, and what is wrong.

-- name: alert
-- Whoever writes it first is the one to tell.
insert into duly_alert (name, since, message, details) values (:name, :now, :message, :details::json)
    on conflict (name) do update set message = excluded.message, details = excluded.details
returning (xmax = 0) as fresh

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
