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

-- name: newest_item
select coalesce(max(id), 0) from duly_item

-- name: rise_all
-- The next ids, oldest first, up to the newest when an act was ordered; likewise along other indexes.
select id from duly_item where id > :place and id <= :until order by id limit :most

-- name: rise_owner
select id
  from duly_item
 where owner <= :owner::text and (owner, id) > (:owner::text, :place::bigint) and id <= :until
 order by owner, id
 limit :most

-- name: rise_review
select id from duly_item where {in_review} and id > :place and id <= :until order by id limit :most

-- name: rise_group
select id
  from duly_item
 where {in_review} and error_group <= :error_group::text
   and (error_group, id) > (:error_group::text, :place::bigint) and id <= :until
 order by error_group, id
 limit :most

-- name: job_bounds
-- The first and the last item of a job; ids grow with the numbers of rows.
select (select id from duly_item where job_id = :job_id order by row_no limit 1),
       (select id from duly_item where job_id = :job_id order by row_no desc limit 1)

-- name: redirect_items
-- Another queue for those of these items that wait; rows of a job stay in its queue.
update duly_item
   set queue = :queue, updated_at = :now
 where {id_given} and state = 'waiting' and job_id is null and {given owner}
returning id
