-- How tries end, and what their ends mean for schedules.

-- name: settle_done
-- The common end, many at a time: plain successes of one claim.
update duly_item
   set state = 'done', outcome = 'done', finished_at = :finished_at,
       status = case when job_id is not null then 'DONE' end,
       changed_at = case when job_id is not null then :finished_at end
 where id in (select value from json_each(:ids)) and fence = :fence and state = 'running'
returning id

-- name: settle_each_done
-- The same for items that each have a fence of their own.
update duly_item
   set state = 'done', outcome = 'done', finished_at = :finished_at,
       status = case when job_id is not null then 'DONE' end,
       changed_at = case when job_id is not null then :finished_at end
  from json_each(:pairs) n
 where duly_item.id = n.value ->> 0 and fence = n.value ->> 1 and state = 'running'
returning id, fence

-- name: settle
-- Applies a change if its item is still in the state and under the fence it was decided for.
update duly_item
   set state = :state, outcome = coalesce(:outcome, outcome), lane = :lane, due_at = :due_at,
       rank = coalesce(:rank, rank), attempt = :attempt, failures = :failures, crashes = :crashes, losses = :losses,
       excuses = :excuses, cause = :cause, finished_at = :finished_at, result = :result,
       status = coalesce(:status, status), changed_at = coalesce(:changed_at, changed_at),
       last_error = coalesce(:error, last_error), error_class = coalesce(:error_class, error_class),
       error_group = coalesce(:error_group, error_group),
       streak = case when :outcome = 'revived' then null else streak end,
       revivals = case when :outcome = 'revived' then revivals + 1 else revivals end
 where id = :id and fence = :fence and state = :was
   and (:expired_at is null
        or not exists (select 1 from duly_lease l where l.fence = :fence and l.lease_until >= :expired_at))
   and (:was_due_at is null or due_at = :was_due_at) and (:was_rank is null or rank = :was_rank)
returning id

-- name: tried
insert into duly_attempt (item_id, fence, {tried}) values (:item_id, :fence, {values tried})

-- name: settle_members
-- What the end of a try means for its schedule.
update duly_schedule
   set failures = case when :is_success then 0
                       when :is_excused then min(failures, :failures)
                       else max(failures + 1, :failures) end,
       last_success_at = case when :is_success then :at else last_success_at end,
       last_error = case when :is_success or :is_excused then last_error else :error end,
       broken_at = case when :is_broken then coalesce(broken_at, :at) else broken_at end,
       next_at = case when :is_broken then null else next_at end,
       fingerprint = coalesce(:fingerprint, fingerprint),
       unchanged = unchanged + :is_unchanged,
       keep = coalesce(:keep, keep)
 where id = :schedule_id
