-- What waits is found and claimed; leases are held, looked at and closed.

-- name: newest
-- What fell due last.
select queue, task, coalesce(owner, ''), lane, rank, due_at
  from duly_item
 where {is_waiting} and due_at <= :now
 order by due_at desc
 limit :most

-- name: oldest
-- What has been due for longest.
select queue, task, coalesce(owner, ''), lane, rank, due_at
  from duly_item
 where {is_waiting} and due_at <= :now
 order by due_at
 limit :most

-- name: next_due
select min(due_at) as due_at from duly_item where {is_waiting} and due_at > :now

-- name: expired
select fence from duly_lease where lease_until < :now order by lease_until limit :most
