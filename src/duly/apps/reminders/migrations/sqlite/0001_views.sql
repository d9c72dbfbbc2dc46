-- duly_reminders  phone calls: scheduled, processing, completed, pending_retry, failed, cancelled.
--
-- Times are text in UTC, such as 2026-12-01 08:00:00.000000: they compare with current_timestamp, and julianday() and
-- strftime() understand them.

drop view if exists duly_reminders;

create view duly_reminders as
select id,
       json_extract(args, '$.phone') as phone,
       json_extract(args, '$.message') as message,
       coalesce(json_extract(args, '$.name'), '') as name,
       case
           when state = 'waiting' and (lane = 'retry' or outcome is 'throttled') then 'pending_retry'
           when state = 'waiting' then 'scheduled'
           when state = 'running' then 'processing'
           when state = 'done' then 'completed'
           else state
       end as status,
       datetime(planned_at / 1000000, 'unixepoch') || printf('.%06d', planned_at % 1000000) as date_time_utc,
       attempt as attempt_count,
       max_attempts,
       case when state = 'waiting' and (lane = 'retry' or outcome is 'throttled')
            then datetime(due_at / 1000000, 'unixepoch') || printf('.%06d', due_at % 1000000) end as next_retry_at,
       substr(last_error, 1, instr(last_error || char(10), char(10)) - 1) as last_error,
       case when fence > 0 and tried > 0 then id || '-' || tried || '-' || printf('%08x', fence) end as idempotency_key,
       execution_key,
       json_extract(result, '$.vapi_call_id') as vapi_call_id,
       owner,
       datetime(created_at / 1000000, 'unixepoch') || printf('.%06d', created_at % 1000000) as created_at
  from (select *,
               attempt + (state = 'waiting' and coalesce(outcome in ('throttled', 'released'), 0)) as tried
          from duly_item
         where task = 'remind') i;
