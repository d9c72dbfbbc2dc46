-- duly_events  birthdays: PENDING, PROCESSING, COMPLETED, FAILED, CANCELLED. It has what has become due, and of each person
-- the event to come, which is no item yet and has no id. A birthday that was too late to be sent is CANCELLED.

create or replace view duly_events as
select id,
       args ->> 'person_id' as user_id,
       planned_at as target_timestamp_utc,
       case
           when state = 'waiting' and failures > 0 then 'FAILED'
           when state = 'waiting' then 'PENDING'
           when state = 'running' then 'PROCESSING'
           when state = 'done' and outcome is not distinct from 'expired' then 'CANCELLED'
           when state = 'done' then 'COMPLETED'
           else upper(state)
       end as status,
       attempt as attempts,
       case when state = 'done' and outcome is distinct from 'expired' then finished_at end as executed_at,
       case when state = 'waiting' and attempt > 0 then due_at end as next_try_at,
       split_part(last_error, chr(10), 1) as last_error,
       fence as version,                                   -- another at every claim
       created_at,
       greatest(created_at, updated_at, started_at, finished_at) as updated_at
  from duly_item
 where task = 'birthday'
 union all
select null,
       args ->> 'person_id',
       next_at,
       'PENDING',
       0,
       null,
       null,
       null,
       0,
       created_at,
       greatest(created_at, last_at)
  from duly_schedule
 where task = 'birthday' and next_at is not null;

-- Birthdays that are more than a week over are not made up for any more; tasks of others that are called so stay as they are.
update duly_schedule set max_lateness = 604800
 where task = 'birthday' and queue = 'birthdays' and args ->> 'person_id' is not null and max_lateness is null;
