-- Queues: paused or open, and how much is in them.

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

-- name: backlog
-- How many items of these lines are due since before then, counted up to a bound.
select count(*)
  from (select 1
          from json_to_recordset(:groups::json) as g(queue text, lane text, rank smallint, task text, owner text)
         cross join lateral (
               select from duly_item i
                where i.is_waiting and i.queue = g.queue and i.lane = g.lane and i.rank = g.rank and i.task = g.task
                  and coalesce(i.owner, '') = g.owner and i.due_at < :before
                limit :most) late
         limit :most) d
