-- How tries end, and what their ends mean for schedules.

-- name: progress
update duly_item set progress = :progress::json where id = :id and fence = :fence and state = 'running'
