-- Jobs, their rows and their files.

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

-- name: job_grew
update duly_job set total = total + :rows, failed = failed + :failed, changed_at = :now where id = :id

-- name: seal_job
-- No more rows come.
update duly_job set is_sealed = true, changed_at = :now where id = :id returning {job}

-- name: end_job
update duly_job set finished_at = :finished_at, then_id = coalesce(:then_id, then_id) where id = :id

-- name: job_is_read
-- Reading its file begins, once more, so that it is not over if it was.
update duly_job
   set attempts = attempts + 1, last_error = null, finished_at = null, options = :options::json, changed_at = :now
 where id = :id

-- name: give_up_job
-- Its file cannot be read, or not to the end.
update duly_job set last_error = :reason, changed_at = :now where id = :id returning {job}

-- name: job_has_duplicates
update duly_job set duplicates = :duplicates where id = :id

-- name: hide_job
-- It is found no more, and nothing comes of its end; its rows and its file go in portions.
update duly_job
   set is_removed = true, is_sealed = true, then_item = null, key = null
 where id = :id and not is_removed
returning id

-- name: pending_rows
-- How many rows of jobs have not ended; the counters of jobs know, so no row is looked at.
select coalesce(job_type, task), sum(total - done - not_found - failed - skipped)
  from duly_job
 where finished_at is null and not is_removed
 group by 1

-- name: job_sums
-- How many rows of some jobs have ended how, and how many there are; the counters of jobs know. Jobs that are named are
-- looked up, and only without names all of them are looked at.
select coalesce(sum(total), 0), coalesce(sum(done), 0), coalesce(sum(not_found), 0), coalesce(sum(failed), 0),
       coalesce(sum(skipped), 0)
  from (select * from duly_job where :jobs::json is null
        union all
        select * from duly_job where {job_given}) j
 where not is_removed and (:owner::text is null or owner = :owner) and (:job_type::text is null or job_type = :job_type)

-- name: old_jobs
-- Jobs that have been over since before then, the oldest first. Those whose file was given up wait for a person.
select id
  from duly_job
 where finished_at < :before and not is_removed and (is_sealed or last_error is null)
 order by finished_at
 limit :most

-- name: hide_old_job
-- The same for a job that has been over since before then, unless it has begun anew.
update duly_job
   set is_removed = true, is_sealed = true, then_item = null, key = null
 where id = :id and not is_removed and finished_at < :before and (is_sealed or last_error is null)
returning id

-- name: any_job
-- Also one that was removed.
select {job} from duly_job where id = :id

-- name: remove_rows
-- Forgets some rows of a job; none of them may be under way.
delete from duly_item
 where id in (select id from duly_item where job_id = :job_id and row_no > :after order by row_no limit :most)
returning row_no

-- name: remove_job
delete from duly_job where id = :id

-- name: mend_row
-- Other arguments for a row in error.
update duly_item set args = :args::json, input = :input::json where id = :id and status = 'ERROR' returning id

-- name: export_rows
-- The next rows of a job with all they have, in their order.
select {export_row}
  from duly_item
 where job_id = :job_id and row_no > :after
 order by row_no
 limit :most

-- name: add_file
insert into duly_file ({new_file}, created_at) values ({values new_file}, :now) returning id

-- name: attach_file
-- Nothing when the job was removed meanwhile, or has a file.
update duly_job set file_id = :file_id where id = :id and not is_removed and file_id is null returning id

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

-- name: forget_queue
-- Removes the record of whether a removed job was paused.
delete from duly_queue where name = :queue

-- name: job_row_ids
-- Rows of a job of one status, by when they changed, unchanged since then and not tried anew too often.
select id, changed_at
  from duly_item
 where job_id = :job_id and status = :status and (changed_at, id) > (:after_at::timestamptz, :after_id::bigint)
   and changed_at <= :until and revivals < :rounds
 order by changed_at, id
 limit :most

-- name: job_items
-- A page of rows of one status, those that changed longest ago first. Only the few words by which people know a row.
select {job_item}, i.result
  from duly_item i
 where i.job_id = :job_id and i.status = :status
   and (i.changed_at, i.id) > (:after_at::timestamptz, :after_id::bigint)
 order by i.changed_at, i.id
 limit :most

-- name: job_items_by_number
select {job_item}, i.result
  from duly_item i
 where i.job_id = :job_id and i.row_no > :after and i.row_no <= :until
 order by i.row_no

-- name: listed_until
-- Where the next so many rows of one status end, over all jobs; nothing when there are no more than that.
select changed_at, id
  from duly_item
 where {is_listed} and status = :status and (changed_at, id) > (:after_at::timestamptz, :after_id::bigint) and changed_at < :until
 order by changed_at, id
 limit 1 offset :ahead

-- name: listed_items
-- A page of the rows of one status up to a place, over all jobs: one read along their index.
select {job_item}, null as result,
       j.job_type, j.owner as user_id, j.total, j.done + j.not_found + j.failed + j.skipped as ended
  from duly_item i
 cross join duly_job j
 where i.{is_listed} and i.status = :status
   and (i.changed_at, i.id) > (:after_at::timestamptz, :after_id::bigint)
   and (i.changed_at, i.id) <= (:until_at::timestamptz, :until_id::bigint) and i.changed_at < :until
   and j.id = i.job_id and not j.is_removed and (j.finished_at is null or :status <> 'PENDING')
   and (:job_type::text is null or j.job_type = :job_type)
 order by i.changed_at, i.id
 limit :most

-- name: pending_heads
-- The jobs, of those that are meant and not over, whose rows of one status come first, each with the first such row.
select j.id, i.changed_at, i.id as item_id
  {first_rows_of_jobs} and j.finished_at is null
 order by i.changed_at, i.id
 limit :most

-- name: ended_heads
-- The same of rows that ended in one way, of jobs that have some.
select j.id, i.changed_at, i.id as item_id
  {first_rows_of_jobs}
   and case :status when 'ERROR' then j.failed > 0 when 'NOT_FOUND' then j.not_found > 0 else j.skipped > 0 end
 order by i.changed_at, i.id
 limit :most

-- name: jobs_of_task
-- The jobs whose rows are of a task.
select {job} from duly_job where task = :task and not is_removed and {given owner} order by id

-- name: job_is_taken
-- The jobs of a task whose key a job of another task has, of the same owner.
select j.id
  from duly_job j
  join duly_job t on t.task = :new and t.key = j.key and coalesce(t.owner, '') = coalesce(j.owner, '')
 where j.task = :task

-- name: jobs_before_task
-- The jobs that put an item of a task at their end, and have not yet.
select {job}
  from duly_job
 where then_item ->> 'task' = :task and then_id is null and not is_removed and {given owner}
 order by id

-- name: retask_jobs
update duly_job set task = :new where {id_given} and task = :task returning id

-- name: retask_sequel
-- Another item for the end of a job.
update duly_job set then_item = :then_item::json where id = :id and then_id is null returning id

-- name: items_of_jobs
-- A page of the rows of one status of some jobs: the first rows of each, merged.
select {job_item}, null as result,
       j.job_type, j.owner as user_id, j.total, j.done + j.not_found + j.failed + j.skipped as ended
  {first_rows_of_jobs}
 order by i.changed_at, i.id
 limit :most

-- name: count_job_rows
-- How many rows a job has, and how many of them ended how, counted off; and its row of now: one moment for both.
select {job of j}, r.rows, r.done as done_rows, r.not_found as not_found_rows, r.failed as failed_rows,
       r.skipped as skipped_rows, r.untrue
  from duly_job j
 cross join (select count(*) as rows,
                    count(*) filter (where status = 'DONE') as done,
                    count(*) filter (where status = 'NOT_FOUND') as not_found,
                    count(*) filter (where status = 'ERROR') as failed,
                    count(*) filter (where status = 'SKIPPED') as skipped,
                    count(*) filter (where status <> {true_status}) as untrue
               from duly_item
              where job_id = :id) r
 where j.id = :id

-- name: true_up_rows
-- Gives rows of a job the status of their state, which a worker of an old version may have changed alone.
update duly_item
   set status = {true_status}, changed_at = :now
 where job_id = :id and row_no > :after and row_no <= :until and status <> {true_status}
returning id

-- name: set_job_counts
update duly_job
   set total = :rows, done = :done, not_found = :not_found, failed = :failed, skipped = :skipped, changed_at = :now
 where id = :id
returning {job}

-- name: last_row_no
select coalesce(max(row_no), 0) as row_no from duly_item where job_id = :id

-- name: open_jobs
-- Jobs that are not over, the oldest first, also those that are being removed.
select id, total from duly_job where finished_at is null order by id limit :most
