-- How items come in.

-- name: versioned
-- Who has a key for good that begins like this, the newest first.
select id from duly_item
 where task = :task and version is not null and key >= :low and key < :high
 order by id desc
 limit 500
