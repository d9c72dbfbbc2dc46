-- Jobs and their rows.

-- name: lock_job
select {job} from duly_job where id = :id for update

-- name: lock_jobs
select id from duly_job where id = any(:ids::bigint[]) order by id for update

-- name: load_rows
copy duly_item (planned_at, {new_row}) from stdin

-- name: count_rows
-- Rows of these jobs have ended, or begin anew.
update duly_job j
   set done = j.done + n.done, not_found = j.not_found + n.not_found, failed = j.failed + n.failed,
       skipped = j.skipped + n.skipped, changed_at = n.now
  from unnest(:id::bigint[], :done::bigint[], :not_found::bigint[], :failed::bigint[], :skipped::bigint[],
              :now::timestamptz[])
       as n(id, done, not_found, failed, skipped, now)
 where j.id = n.id
returning {job of j}

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

-- name: lock_owner
-- Who makes jobs of one owner takes turns, until the end of the transaction.
select pg_advisory_xact_lock(hashtextextended('duly jobs of ' || coalesce(:owner::text, ''), 0))

-- name: jobs_under_key
-- The jobs that an owner has under a key, of these tasks.
select {job}
  from duly_job
 where task in (select e.value from json_array_elements_text(:tasks::json) as e(value)) and coalesce(owner, '') = coalesce(:owner::text, '') and key = :key

-- name: job_rows_named
-- Those of these rows that are of this job.
select id, outcome from duly_item where job_id = :job_id and id in (select e.value::bigint from json_array_elements_text(:ids::json) as e(value))

-- name: failed_rows
-- The items of those of these rows that are in error, with what came in.
select id, row_no, input
  from duly_item
 where job_id = :job_id and status = 'ERROR'
   and row_no in (select e.value::bigint from json_array_elements_text(:numbers::json) as e(value))

-- name: result_names
-- The fields of the results of some rows of a job; `result` stands for those that are no object.
select k.name
  from duly_item i
 cross join lateral json_object_keys(case when json_typeof(i.result) = 'object' then i.result end) as k(name)
 where i.job_id = :job_id and i.row_no > :after and i.row_no <= :until
 union
select 'result'
 where exists (select from duly_item where job_id = :job_id and row_no > :after and row_no <= :until and json_typeof(result) not in ('object', 'null'))
 order by name

-- name: argument_names
-- The arguments of some rows of a job.
select distinct k.name
  from duly_item i
 cross join lateral json_object_keys(i.args) as k(name)
 where i.job_id = :job_id and i.row_no > :after and i.row_no <= :until
 order by k.name

-- name: places_in_use
-- Those of these places where the file of a job is kept.
select place from duly_file where place in (select e.value from json_array_elements_text(:places::json) as e(value))

-- name: count_status
-- How many rows of one status changed in a while, over some jobs, counted up to a bound. Jobs that are named are looked
-- up, and in jobs that are over nothing waits or is worked on.
select count(*)
  from (select 1
          from (select * from duly_job where :jobs::json is null
                union all
                select * from duly_job where {job_given}) j
         cross join lateral (
               select 1
                 from duly_item
                where job_id = j.id and status = :status
                  and changed_at >= :since::timestamptz and changed_at < :until::timestamptz
                order by changed_at
                limit :most) i
         where not j.is_removed and (:owner::text is null or j.owner = :owner) and (:job_type::text is null or j.job_type = :job_type)
           and (j.finished_at is null or :status not in ('PENDING', 'PROCESSING'))
         limit :most) c

-- name: job_speeds
-- Of each of these jobs and each end of rows, how many ended since then, the latest ones only, and when the first of them did.
select e.value::bigint as id, w.rows, w.oldest
  from json_array_elements_text(:ids::json) as e(value)
 cross join (values ('DONE'), ('NOT_FOUND'), ('ERROR'), ('SKIPPED')) as s(status)
 cross join lateral (
       select count(*) as rows, min(changed_at) as oldest
         from (select changed_at
                 from duly_item
                where job_id = e.value::bigint and status = s.status and changed_at >= :since::timestamptz
                order by changed_at desc
                limit :most) r) w
 where w.rows > 0

-- name: file_names
select id, name from duly_file where id in (select e.value::bigint from json_array_elements_text(:ids::json) as e(value))

-- name: job_is_cancelled
update duly_job set options = (options::jsonb || jsonb_build_object('cancelled', true))::json where id = :id

-- name: job_goes_on
-- A row of a job that was cancelled is tried anew.
update duly_job set options = (options::jsonb - 'cancelled')::json where id = :id

-- name: working_items
-- A page of the rows that are worked on, over all jobs: those under leases, so few enough to be sorted.
select {job_item}, null as result,
       j.job_type, j.owner as user_id, j.total, j.done + j.not_found + j.failed + j.skipped as ended
  from (select w.id
          from duly_lease l
         cross join lateral (
               select id, job_id, changed_at
                 from duly_item
                where id = any(l.items) and fence = l.fence and status = 'PROCESSING' and state = 'running'
                  and (changed_at, id) > (:after_at::timestamptz, :after_id::bigint)
                  and changed_at < :until::timestamptz) w
          join duly_job j on j.id = w.job_id
         where not j.is_removed and (:owner::text is null or j.owner = :owner)
           and (:job_type::text is null or j.job_type = :job_type)
           and (:jobs::json is null or j.{job_given})
         order by w.changed_at, w.id
         limit :most) p
  join duly_item i on i.id = p.id
  join duly_job j on j.id = i.job_id
 order by i.changed_at, i.id
