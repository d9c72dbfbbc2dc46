-- Jobs and their rows.

-- name: open_job
-- A new job, or the one that has this key.
insert into duly_job ({new_job}, created_at, changed_at)
values ({values new_job}, :now, :now)
    on conflict (task, coalesce(owner, ''), key) where key is not null do update set key = excluded.key
returning {job}

-- name: job
select {job} from duly_job where id = :id and (:owner::text is null or owner = :owner)

-- name: jobs
-- The newest first.
select {job}
  from duly_job
 where (:owner::text is null or owner = :owner) and (:before::bigint is null or id < :before)
 order by id desc
 limit :most

-- name: lock_job
select {job} from duly_job where id = :id for update

-- name: lock_jobs
select id from duly_job where id = any(:ids::bigint[]) order by id for update

-- name: load_rows
copy duly_item (planned_at, {new_row}) from stdin

-- name: job_grew
update duly_job set total = total + :rows, failed = failed + :failed, changed_at = :now where id = :id

-- name: seal_job
-- No more rows come.
update duly_job set is_sealed = true, changed_at = :now where id = :id returning {job}

-- name: count_rows
-- Rows of these jobs have ended, or begin anew.
update duly_job j
   set done = j.done + n.done, not_found = j.not_found + n.not_found, failed = j.failed + n.failed,
       skipped = j.skipped + n.skipped, changed_at = :now
  from unnest(:ids::bigint[], :done::bigint[], :not_found::bigint[], :failed::bigint[], :skipped::bigint[])
       as n(id, done, not_found, failed, skipped)
 where j.id = n.id
returning {job of j}

-- name: end_job
update duly_job set finished_at = :finished_at, then_id = coalesce(:then_id, then_id) where id = :id
