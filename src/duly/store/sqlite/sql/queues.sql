-- Queues: paused or open, and how much is in them.

-- name: is_queue
-- Whether anything has this name, or one below it: what waits, runs, is in review or comes again, or was put lately.
select case
         when exists (select 1 from duly_item where state = 'waiting' and queue = :queue) then 1
         when exists (select 1 from duly_item
                       where state = 'waiting' and queue > :queue || '/' and queue < :queue || '0') then 1
         when exists (select 1 from (select queue from duly_item order by id desc limit 10000) i
                       where i.queue = :queue) then 1
         when exists (select 1 from duly_schedule where queue = :queue) then 1
         when exists (select 1 from duly_lease l
                       join json_each(l.items) e
                       join duly_item i on i.id = e.value
                       where i.queue = :queue) then 1
         else exists (select 1 from duly_item where state = 'failed' and queue = :queue)
       end as is_there

-- name: depth
-- Live and reviewable items by queue; finished ones are not counted, so it does not grow with history.
select w.queue, w.lane, w.state, w.items, w.due, w.oldest, (q.paused_at is not null) as paused
  from (select queue, lane, state, count(*) as items, count(*) filter (where due_at <= :now) as due,
               min(due_at) as oldest
          from duly_item
         where state = 'waiting'
         group by queue, lane, state
        union all
        select i.queue, i.lane, i.state, count(*), 0, min(i.started_at)
          from duly_lease l
          join json_each(l.items) e
          join duly_item i on i.id = e.value and i.fence = l.fence and i.state = 'running'
         group by i.queue, i.lane, i.state
        union all
        select queue, 'main', state, count(*), 0, min(finished_at)
          from duly_item
         where state = 'failed'
         group by queue, state) w
  left join duly_queue q on q.name = w.queue
union all
select q.name, 'main', 'waiting', 0, 0, null, 1
  from duly_queue q
 where q.paused_at is not null
   and not exists (select 1 from duly_item i where i.queue = q.name and i.state = 'waiting')

-- name: backlog
-- How many items of these lines are due since before then, counted up to a bound.
select count(*)
  from (select 1
          from json_each(:groups) g
          join duly_item i on i.queue = json_extract(g.value, '$.queue') and i.lane = json_extract(g.value, '$.lane')
                          and i.rank = json_extract(g.value, '$.rank') and i.task = json_extract(g.value, '$.task')
                          and coalesce(i.owner, '') = json_extract(g.value, '$.owner')
         where i.state = 'waiting' and i.due_at < :before
         limit :most) d
