-- One action on all rows that fit a filter.

-- name: bulk_create
insert into duly_bulk (owner, author, action, filter, options, total, until, created_at)
values (:owner, :author, :action, :filter, :options, :total, :until, :now)
returning id

-- name: bulk
select {act}
  from duly_bulk
 where id = :id and (:owner is null or owner = :owner)

-- name: bulks
select {act}
  from duly_bulk
 where id < :before and (:owner is null or owner = :owner)
 order by id desc
 limit :most

-- name: bulk_begin
update duly_bulk set options = :options where id = :id and place = 0

-- name: bulk_move
-- Notes where it stands, unless it was cancelled or someone else went on from the same place.
update duly_bulk
   set seen = seen + :seen, changed = changed + :changed, place = :place
 where id = :id and state = 'running' and place = :was
returning place

-- name: bulk_finish
update duly_bulk set state = 'done', finished_at = :now where id = :id and state = 'running'

-- name: bulk_cancel
update duly_bulk
   set state = 'cancelled', finished_at = :now
 where id = :id and state = 'running' and (:owner is null or owner = :owner)
returning id

-- name: bulk_count
-- How many rows a filter means now, so many at most, and the newest row of all. Acts are about no other acts.
select count(*), (select coalesce(max(id), 0) from duly_item)
  from (select id from duly_item
         where task <> 'duly.acts'
           and (:owner is null or owner = :owner)
           and (:state is null or state = :state)
           and (:task is null or task = :task)
           and (:queue is null or queue = :queue)
           and (:error_group is null or error_group = :error_group)
         limit :most) d

-- name: bulk_page
-- The next rows of a filter, oldest first, up to the newest when it was ordered.
select id
  from duly_item
 where id > :place and id <= :until
   and task <> 'duly.acts'
   and (:owner is null or owner = :owner)
   and (:state is null or state = :state)
   and (:task is null or task = :task)
   and (:queue is null or queue = :queue)
   and (:error_group is null or error_group = :error_group)
 order by id
 limit :most
