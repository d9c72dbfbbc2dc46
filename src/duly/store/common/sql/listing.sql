-- Lists of items under any filter. A walk gives the next ids along one index, newest first, each with its place in the
-- walk; those of them that fit are picked out by their ids. So a search that no index answers costs as much as the rows
-- that it was allowed to look at, and no more.

-- name: walk_all
select id, id as place from duly_item where id < :before order by id desc limit :most

-- name: walk_owner
-- It asks for a range, and not for equality, because the order of such a range is that of one index alone.
select id, id as place
  from duly_item
 where owner >= :owner::text and (owner, id) < (:owner::text, :before::bigint)
 order by owner desc, id desc
 limit :most

-- name: walk_review
select id, id as place from duly_item where {in_review} and id < :before order by id desc limit :most

-- name: walk_group
-- A range likewise.
select id, id as place
  from duly_item
 where {in_review} and error_group >= :error_group::text
   and (error_group, id) < (:error_group::text, :before::bigint)
 order by error_group desc, id desc
 limit :most

-- name: walk_job
-- Rows of a job, the last ones first.
select id, row_no from duly_item where job_id = :job_id and row_no < :before order by row_no desc limit :most

-- name: walk_schedule
-- What a schedule made, the latest time first.
select id, planned_at
  from duly_item
 where schedule_id = :schedule_id and planned_at < :before::timestamptz
 order by planned_at desc
 limit :most

-- name: newest_until
-- The newest item up to this id, and when it was put.
select id, created_at from duly_item where id <= :id order by id desc limit 1

-- name: some_waiting
-- Waiting items, those due first; for counts, which stop soon.
select id from duly_item where {is_waiting} order by due_at limit :most

-- name: fitting
-- Those of these items that a filter means, and their states.
select id, state
  from duly_item
 where {id_given}
   and {given owner, task, queue, error_group, schedule_id, job_id}
   and (:but::text is null or task <> :but::text)
   and (:below::bigint is null or id < :below::bigint)
   and (:key::text is null or key = :key::text or key = owner || '/' || :key::text)
   and (:states::text is null or :states::text like '%,' || state || ',%')
   and (:error::text is null or lower(last_error) like lower(:error::text) escape '!'
        or last_error like :error::text escape '!')
   and (:min_tries::bigint is null or attempt >= :min_tries::bigint)
   and (:since::timestamptz is null or
        case :date_field::text when 'due' then due_at when 'started' then started_at when 'finished' then finished_at
                               else created_at end >= :since::timestamptz)
   and (:until::timestamptz is null or
        case :date_field::text when 'due' then due_at when 'started' then started_at when 'finished' then finished_at
                               else created_at end < :until::timestamptz)
   and {has_values}
