-- Jobs and their rows.

-- name: lock_job
select {job} from duly_job where id = :id

-- name: load_rows
insert into duly_item ({new_row}, planned_at) values ({places new_row}, ?)

-- name: count_rows
-- Rows of this job have ended, or begin anew.
update duly_job
   set done = done + :done, not_found = not_found + :not_found, failed = failed + :failed,
       skipped = skipped + :skipped, changed_at = :now
 where id = :id
returning {job}

-- name: jobs_at_work
-- Those of these jobs of which a row is worked on now.
select e.value as id
  from json_each(:ids) as e
 where exists (select 1 from duly_item i where i.job_id = e.value and i.status = 'PROCESSING')

-- name: jobs_of
-- How many jobs of this owner are not over, and how many of their rows are still to end.
select count(*), coalesce(sum(total - done - not_found - failed - skipped), 0) as rows
  from duly_job
 where finished_at is null and not is_removed and coalesce(owner, '') = coalesce(:owner, '')

-- name: lock_owner
-- Who makes jobs of one owner takes turns: as all writers do here.
select :owner

-- name: jobs_under_key
-- The jobs that an owner has under a key, of these tasks.
select {job}
  from duly_job
 where task in (select e.value from json_each(:tasks) as e) and coalesce(owner, '') = coalesce(:owner, '') and key = :key

-- name: job_rows_named
-- Those of these rows that are of this job.
select id, outcome from duly_item where job_id = :job_id and id in (select e.value from json_each(:ids) as e)

-- name: failed_rows
-- The items of those of these rows that are in error, with what came in.
select id, row_no, input
  from duly_item
 where job_id = :job_id and status = 'ERROR'
   and row_no in (select value from json_each(:numbers))

-- name: result_names
-- The fields of the results of some rows of a job; `result` stands for those that are no object.
select k.key as name
  from duly_item i, json_each(case when json_type(i.result) = 'object' then i.result end) k
 where i.job_id = :job_id and i.row_no > :after and i.row_no <= :until
 union
select 'result' as name
 where exists (select 1 from duly_item where job_id = :job_id and row_no > :after and row_no <= :until and json_type(result) not in ('object', 'null'))
 order by name

-- name: argument_names
-- The arguments of some rows of a job.
select distinct k.key as name
  from duly_item i, json_each(i.args) k
 where i.job_id = :job_id and i.row_no > :after and i.row_no <= :until
 order by name

-- name: places_in_use
-- Those of these places where the file of a job is kept.
select place from duly_file where place in (select e.value from json_each(:places) as e)

-- name: count_status
-- How many rows of one status changed in a while, over some jobs, counted up to a bound. Jobs that are named are looked
-- up, and in jobs that are over nothing waits or is worked on.
select count(*)
  from (select 1
          from (select * from duly_job where :jobs is null
                union all
                select * from duly_job where {job_given}) j
         cross join duly_item i
         where i.job_id = j.id and i.status = :status and i.changed_at >= :since and i.changed_at < :until
           and not j.is_removed and (:owner is null or j.owner = :owner) and (:job_type is null or j.job_type = :job_type)
           and (j.finished_at is null or :status not in ('PENDING', 'PROCESSING'))
         limit :most) c

-- name: job_speeds
-- Of each of these jobs and each end of rows, how many ended since then, the latest ones only, and when the first of them did.
select w.id, count(*) as rows, min(w.changed_at) as oldest
  from (select e.value as id, s.column1 as status, i.changed_at
          from json_each(:ids) e
         cross join (values ('DONE'), ('NOT_FOUND'), ('ERROR'), ('SKIPPED')) s
         cross join duly_item i
         where i.id in (select r.id
                          from duly_item r
                         where r.job_id = e.value and r.status = s.column1 and r.changed_at >= :since
                         order by r.changed_at desc
                         limit :most)) w
 group by w.id, w.status

-- name: file_names
select id, name from duly_file where id in (select value from json_each(:ids))

-- name: job_is_cancelled
update duly_job set options = json_set(options, '$.cancelled', json('true')) where id = :id

-- name: job_goes_on
-- A row of a job that was cancelled is tried anew.
update duly_job set options = json_remove(options, '$.cancelled') where id = :id

-- name: working_items
-- A page of the rows that are worked on, over all jobs: those under leases, so few enough to be sorted.
select {job_item}, null as result,
       j.job_type, j.owner as user_id, j.total, j.done + j.not_found + j.failed + j.skipped as ended
  from (select w.id
          from duly_lease l
         cross join json_each(l.items) e
         cross join duly_item w
         cross join duly_job j
         where w.id = e.value and w.fence = l.fence and w.status = 'PROCESSING' and w.state = 'running'
           and (w.changed_at, w.id) > (:after_at, :after_id) and w.changed_at < :until
           and j.id = w.job_id and not j.is_removed and (:owner is null or j.owner = :owner)
           and (:job_type is null or j.job_type = :job_type) and (:jobs is null or j.{job_given})
         order by w.changed_at, w.id
         limit :most) p
 cross join duly_item i
 cross join duly_job j
 where i.id = p.id and j.id = i.job_id
 order by i.changed_at, i.id
