-- Jobs and their rows.

-- name: open_job
-- A new job, or the one that has this key.
insert into duly_job ({new_job}, created_at, changed_at)
values ({values new_job}, :now, :now)
    on conflict (task, coalesce(owner, ''), key) where key is not null do update set key = excluded.key
returning {job}

-- name: job
select {job} from duly_job where id = :id and (:owner is null or owner = :owner)

-- name: jobs
-- The newest first.
select {job}
  from duly_job
 where (:owner is null or owner = :owner) and (:before is null or id < :before)
 order by id desc
 limit :most

-- name: lock_job
select {job} from duly_job where id = :id

-- name: load_rows
insert into duly_item ({new_row}, planned_at) values ({places new_row}, ?)

-- name: job_grew
update duly_job set total = total + :rows, failed = failed + :failed, changed_at = :now where id = :id

-- name: seal_job
-- No more rows come.
update duly_job set is_sealed = 1, changed_at = :now where id = :id returning {job}

-- name: count_rows
-- Rows of this job have ended, or begin anew.
update duly_job
   set done = done + :done, not_found = not_found + :not_found, failed = failed + :failed,
       skipped = skipped + :skipped, changed_at = :now
 where id = :id
returning {job}

-- name: end_job
update duly_job set finished_at = :finished_at, then_id = coalesce(:then_id, then_id) where id = :id
