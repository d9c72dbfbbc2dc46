-- How tries end, and what their ends mean for schedules.

-- name: late_result
-- What a try brought that ended after its item was cancelled: it tells what was done all the same.
update duly_item set result = :result::json
 where id = :id and fence = :fence and state = 'cancelled' and result is null
returning id

-- name: progress
update duly_item set progress = :progress::json where id = :id and fence = :fence and state = 'running'
