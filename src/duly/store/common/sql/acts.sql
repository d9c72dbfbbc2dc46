-- One action on all rows that fit a filter.

-- name: act_create
insert into duly_act (owner, author, action, filter, options, total, until, created_at)
values (:owner, :author, :action, :filter::json, :options::json, :total, :until, :now)
returning id

-- name: act
select {act}
  from duly_act
 where id = :id and {given owner}

-- name: acts
select {act}
  from duly_act
 where id < :before and {given owner}
 order by id desc
 limit :most

-- name: act_begin
update duly_act set options = :options::json where id = :id and place = 0

-- name: act_move
-- Notes where it stands, unless it was cancelled or someone else went on from the same place.
update duly_act
   set seen = seen + :seen, changed = changed + :changed, place = :place
 where id = :id and state = 'running' and place = :was
returning place

-- name: act_finish
update duly_act set state = 'done', finished_at = :now where id = :id and state = 'running'

-- name: act_cancel
update duly_act
   set state = 'cancelled', finished_at = :now
 where id = :id and state = 'running' and {given owner}
returning id

-- name: act_count
-- How many rows a filter means now, so many at most, and the newest row of all. Acts are about no other acts.
select count(*), (select coalesce(max(id), 0) from duly_item)
  from (select id from duly_item
         where task <> 'duly.acts'
           and {given owner, state, task, queue, error_group}
         limit :most) d

-- name: act_page
-- The next rows of a filter, oldest first, up to the newest when it was ordered.
select id
  from duly_item
 where id > :place and id <= :until
   and task <> 'duly.acts'
   and {given owner, state, task, queue, error_group}
 order by id
 limit :most
