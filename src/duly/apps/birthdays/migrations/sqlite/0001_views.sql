-- duly_events  birthdays: PENDING, PROCESSING, COMPLETED, FAILED, CANCELLED. It has what has become due, and of each person
-- the event to come, which is no item yet and has no id. A birthday that was too late to be sent is CANCELLED.
--
-- Times are text in UTC, such as 2026-12-01 08:00:00.000000: they compare with current_timestamp, and julianday() and
-- strftime() understand them.

drop view if exists duly_events;

create view duly_events as
select id,
       user_id,
       datetime(target / 1000000, 'unixepoch') || printf('.%06d', target % 1000000) as target_timestamp_utc,
       status,
       attempts,
       datetime(executed / 1000000, 'unixepoch') || printf('.%06d', executed % 1000000) as executed_at,
       datetime(next_try / 1000000, 'unixepoch') || printf('.%06d', next_try % 1000000) as next_try_at,
       substr(last_error, 1, instr(last_error || char(10), char(10)) - 1) as last_error,
       version,
       datetime(created / 1000000, 'unixepoch') || printf('.%06d', created % 1000000) as created_at,
       datetime(updated / 1000000, 'unixepoch') || printf('.%06d', updated % 1000000) as updated_at
  from (select id,
               json_extract(args, '$.person_id') as user_id,
               planned_at as target,
               case
                   when state = 'waiting' and failures > 0 then 'FAILED'
                   when state = 'waiting' then 'PENDING'
                   when state = 'running' then 'PROCESSING'
                   when state = 'done' and outcome is 'expired' then 'CANCELLED'
                   when state = 'done' then 'COMPLETED'
                   else upper(state)
               end as status,
               attempt as attempts,
               case when state = 'done' and outcome is not 'expired' then finished_at end as executed,
               case when state = 'waiting' and attempt > 0 then due_at end as next_try,
               last_error,
               fence as version,
               created_at as created,
               max(created_at, coalesce(updated_at, 0), coalesce(started_at, 0), coalesce(finished_at, 0)) as updated
          from duly_item
         where task = 'birthday'
         union all
        select null, json_extract(args, '$.person_id'), next_at, 'PENDING', 0, null, null, null, 0, created_at,
               max(created_at, coalesce(last_at, 0))
          from duly_schedule
         where task = 'birthday' and next_at is not null);

-- Birthdays that are more than a week over are not made up for any more; tasks of others that are called so stay as they are.
update duly_schedule set max_lateness = 604800
 where task = 'birthday' and queue = 'birthdays' and json_extract(args, '$.person_id') is not null and max_lateness is null;
