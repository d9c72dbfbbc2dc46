-- Parts of statements that several sections have in common: {name} in a section stands for the fragment of that name.

-- name: is_waiting
state = 'waiting'

-- name: in_review
state = 'failed'

-- name: is_listed
-- The index of lists over all jobs has the row.
status not in ('DONE', 'PROCESSING')

-- name: true_status
-- The status of a row of a job whose item is in this state, as `status_of` says.
case state
        when 'waiting' then 'PENDING'
        when 'running' then 'PROCESSING'
        when 'failed' then 'ERROR'
        when 'cancelled' then 'SKIPPED'
        else case outcome when 'not_found' then 'NOT_FOUND' when 'skipped' then 'SKIPPED' when 'expired' then 'SKIPPED' else 'DONE' end
    end

-- name: job_item
-- The row i of a job, as lists show it. One whose last try was given back shows why.
i.id, i.job_id, i.row_no, i.status, i.attempt,
        coalesce(case when i.state = 'waiting' then i.cause end, i.last_error) as last_error,
        case when i.state = 'running' then i.claimed_by end as claimed_by,
        case when i.state = 'running' then i.started_at end as started_at, i.changed_at, {summary}

-- name: schedule_state
-- Whether a schedule is active, paused or broken.
case
        when broken_at is not null then 'broken'
        when paused_at is not null then 'paused'
        else 'active'
    end

-- name: standing
-- How a schedule s stands, by the last item i that it made.
case
        when i.state = 'running' then 'running'
        when i.state = 'waiting' and i.lane = 'main' then 'waiting'
        when i.state = 'done' then 'done'
        when s.failures > 0 then 'failing'
        when i.state = 'failed' or i.outcome = 'discarded' then 'waiting'
        when s.last_success_at is not null then 'done'
        else 'waiting'
    end
