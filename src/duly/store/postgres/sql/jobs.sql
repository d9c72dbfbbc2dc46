-- Jobs and their rows.

-- name: open_job
-- A new job, or the one that has this key.
insert into duly_job ({new_job}, created_at, changed_at)
values ({values new_job}, :now, :now)
    on conflict (task, coalesce(owner, ''), key) where key is not null do update set key = excluded.key
returning {job}

-- name: job
-- One that was removed is not found any more.
select {job} from duly_job where id = :id and not is_removed and (:owner::text is null or owner = :owner)

-- name: jobs
-- The newest first.
select {job}
  from duly_job
 where not is_removed and (:owner::text is null or owner = :owner) and (:before::bigint is null or id < :before)
   and (:job_type::text is null or job_type = :job_type)
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

-- name: jobs_at_work
-- Those of these jobs of which a row is worked on now.
select e.value::bigint as id
  from json_array_elements_text(:ids::json) as e(value)
 cross join lateral (
       select 1 from duly_item i where i.job_id = e.value::bigint and i.status = 'PROCESSING' limit 1) w

-- name: jobs_of
-- How many jobs of this owner are not over, and how many of their rows are still to end.
select count(*), coalesce(sum(total - done - not_found - failed - skipped), 0)::bigint as rows
  from duly_job
 where finished_at is null and not is_removed and coalesce(owner, '') = coalesce(:owner::text, '')

-- name: job_is_read
-- Reading its file begins, once more.
update duly_job set attempts = attempts + 1, last_error = null, options = :options::json, changed_at = :now where id = :id

-- name: job_cannot_be_read
update duly_job set last_error = :last_error, changed_at = :now where id = :id

-- name: job_has_duplicates
update duly_job set duplicates = :duplicates where id = :id

-- name: hide_job
-- It is found no more, and nothing comes of its end; its rows and its file go in portions.
update duly_job set is_removed = true, is_sealed = true, then_item = null where id = :id and not is_removed returning id

-- name: any_job
-- Also one that was removed.
select {job} from duly_job where id = :id

-- name: remove_rows
-- Forgets some rows of a job; none of them may be under way.
delete from duly_item
 where id in (select id from duly_item where job_id = :job_id order by row_no limit :most)
returning id

-- name: remove_job
delete from duly_job where id = :id

-- name: job_row_ids
-- Rows of a job in their order, of these statuses, unchanged since then, not tried anew too often, and such as could
-- be read.
select id, row_no
  from duly_item
 where job_id = :job_id and row_no > :after and status in (select json_array_elements_text(:statuses::json)) and changed_at <= :until
   and revivals < case status when 'NOT_FOUND' then :not_found_rounds else :error_rounds end and outcome is distinct from 'unreadable'
 order by row_no
 limit :most

-- name: job_rows_named
-- Those of these rows that are of this job.
select id, outcome from duly_item where job_id = :job_id and id in (select e.value::bigint from json_array_elements_text(:ids::json) as e(value))

-- name: failed_rows
-- The items of those of these rows that are in error.
select id, row_no
  from duly_item
 where job_id = :job_id and status = 'ERROR'
   and row_no in (select e.value::bigint from json_array_elements_text(:numbers::json) as e(value))

-- name: mend_row
-- Other arguments for a row in error.
update duly_item set args = :args::json, input = :input::json where id = :id and status = 'ERROR' returning id

-- name: job_items
-- A page of the rows of one status, by when they changed last.
select id, job_id, row_no, status, attempt, last_error,
       case when state = 'running' then claimed_by end as claimed_by,
       case when state = 'running' then started_at end as started_at, changed_at,
       left(args ->> 'title', 121) as title,
       left(args ->> 'brand', 121) as brand,
       left(args ->> 'sku', 121) as sku, result
  from duly_item
 where job_id = :job_id and status = :status and (changed_at, id) > (:after_at::timestamptz, :after_id::bigint)
 order by changed_at, id
 limit :most

-- name: job_items_by_number
select id, job_id, row_no, status, attempt, last_error,
       case when state = 'running' then claimed_by end as claimed_by,
       case when state = 'running' then started_at end as started_at, changed_at,
       left(args ->> 'title', 121) as title,
       left(args ->> 'brand', 121) as brand,
       left(args ->> 'sku', 121) as sku, result
  from duly_item
 where job_id = :job_id and row_no > :after and row_no <= :until
 order by row_no

-- name: pending_items
-- A page of the rows of one status over all jobs of one owner, by when they changed last.
select id, job_id, row_no, status, attempt, last_error,
       case when state = 'running' then claimed_by end as claimed_by,
       case when state = 'running' then started_at end as started_at, changed_at,
       left(args ->> 'title', 121) as title,
       left(args ->> 'brand', 121) as brand,
       left(args ->> 'sku', 121) as sku, null as result
  from duly_item
 where job_id is not null and status <> 'DONE' and status = :status and owner = :owner and (changed_at, id) > (:after_at::timestamptz, :after_id::bigint)
   and (:job_type::text is null
        or exists (select 1 from duly_job j where j.id = job_id and j.job_type = :job_type))
 order by changed_at, id
 limit :most

-- name: pending_items_of_all
-- A page of the rows of one status over all jobs, by when they changed last.
select id, job_id, row_no, status, attempt, last_error,
       case when state = 'running' then claimed_by end as claimed_by,
       case when state = 'running' then started_at end as started_at, changed_at,
       left(args ->> 'title', 121) as title,
       left(args ->> 'brand', 121) as brand,
       left(args ->> 'sku', 121) as sku, null as result
  from duly_item
 where job_id is not null and status <> 'DONE' and status = :status and (changed_at, id) > (:after_at::timestamptz, :after_id::bigint)
   and (:job_type::text is null
        or exists (select 1 from duly_job j where j.id = job_id and j.job_type = :job_type))
 order by changed_at, id
 limit :most

-- name: export_rows
-- The next rows of a job with all they have, in their order.
select {export_row}
  from duly_item
 where job_id = :job_id and row_no > :after
 order by row_no
 limit :most

-- name: result_names
-- The fields of all results of a job.
select distinct k.name
  from duly_item i
 cross join lateral json_object_keys(case when json_typeof(i.result) = 'object' then i.result end) as k(name)
 where i.job_id = :job_id
 order by k.name

-- name: add_file
insert into duly_file ({new_file}, created_at) values ({values new_file}, :now) returning id

-- name: attach_file
update duly_job set file_id = :file_id where id = :id

-- name: file
select {file} from duly_file where id = :id

-- name: remove_file
delete from duly_file where id = :id

-- name: mapping
select columns from duly_mapping where owner = :owner and job_type = :job_type and fingerprint = :fingerprint

-- name: keep_mapping
insert into duly_mapping (owner, job_type, fingerprint, columns, changed_at)
values (:owner, :job_type, :fingerprint, :columns::json, :now)
    on conflict (owner, job_type, fingerprint)
    do update set columns = excluded.columns, changed_at = excluded.changed_at
