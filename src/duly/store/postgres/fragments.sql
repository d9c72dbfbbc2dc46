-- What PostgreSQL says in its own words where sections have {name}.

-- name: is_waiting
is_waiting

-- name: in_review
in_review

-- name: id_given
id = any(array(select value::bigint from json_array_elements_text(:ids::json)))

-- name: job_given
id = any(array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: has_values
-- Every wanted value is found at its path in the arguments or in the result.
not exists (
       select 1
         from json_array_elements(:wanted::json) as w(one)
        where case one ->> 'of' when 'result' then result else args end
              #>> array(select json_array_elements_text(one -> 'path')) is distinct from one ->> 'value')

-- name: summary
-- The few words by which people know a row of a job.
left(i.args ->> 'title', 121) as title, left(i.args ->> 'brand', 121) as brand, left(i.args ->> 'sku', 121) as sku

-- name: first_rows_of_jobs
-- The first rows `i` of one status, up to a place, of each job `j` that is meant. The status is selected, so that the
-- planner does not know it: where it expects none of that status, it would look for them in the index of all jobs.
from duly_job j
 cross join lateral (
       select *
         from duly_item
        where job_id = j.id and status = (select :status::text)
          and (changed_at, id) > (:after_at::timestamptz, :after_id::bigint)
          and (changed_at, id) <= (:until_at::timestamptz, :until_id::bigint) and changed_at < :until::timestamptz
        order by changed_at, id
        limit :each) i
 where not j.is_removed and (:owner::text is null or j.owner = :owner)
   and (:job_type::text is null or j.job_type = :job_type)
   and (:jobs::json is null or j.id = any(array(select value::bigint from json_array_elements_text(:jobs::json))))
