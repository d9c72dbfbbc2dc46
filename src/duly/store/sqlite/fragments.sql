-- What SQLite says in its own words where sections have {name}.

-- name: id_given
id in (select value from json_each(:ids))

-- name: job_given
id in (select value from json_each(:jobs))

-- name: has_values
-- Every wanted value is found at one of its paths in the arguments or in the result, compared as text: its path may
-- mean a name or a place in a list.
not exists (
       select 1
         from json_each(:wanted) w
        where not exists (
              select 1
                from json_each(w.value, '$.paths') p
               where case json_type(iif(w.value ->> 'of' = 'result', result, args), p.value)
                     when 'true' then 'true'
                     when 'false' then 'false'
                     else cast(json_extract(iif(w.value ->> 'of' = 'result', result, args), p.value) as text)
                     end = w.value ->> 'value'))

-- name: summary
-- The few words by which people know a row of a job.
substr(cast(json_extract(i.args, '$.title') as text), 1, 121) as title,
       substr(cast(json_extract(i.args, '$.brand') as text), 1, 121) as brand,
       substr(cast(json_extract(i.args, '$.sku') as text), 1, 121) as sku

-- name: first_rows_of_jobs
-- The first rows `i` of one status, up to a place, of each job `j` that is meant.
from duly_job j
  join duly_item i on i.id in (
       select r.id
         from duly_item r
        where r.job_id = j.id and r.status = :status and (r.changed_at, r.id) > (:after_at, :after_id)
          and (r.changed_at, r.id) <= (:until_at, :until_id) and r.changed_at < :until
        order by r.changed_at, r.id
        limit :each)
 where not j.is_removed and (:owner is null or j.owner = :owner) and (:job_type is null or j.job_type = :job_type)
   and (:jobs is null or j.id in (select value from json_each(:jobs)))
