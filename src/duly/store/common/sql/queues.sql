-- Queues: paused or open, and how much is in them.

-- name: pause
insert into duly_queue (name, paused_at) values (:queue, :now)
    on conflict (name) do update set paused_at = coalesce(duly_queue.paused_at, excluded.paused_at)

-- name: resume
update duly_queue set paused_at = null where name = :queue

-- name: overdue
-- Among the first items that are due since before then: how many of each queue and lane, and the oldest; those that
-- fell due before workers were back are counted separately.
select queue, lane, count(*), min(due_at) as oldest
  from (select queue, lane, due_at
          from duly_item
         where {is_waiting} and due_at < :before
         order by due_at
         limit :most) s
 group by queue, lane, due_at < :back_at
