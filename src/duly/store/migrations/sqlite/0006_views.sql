-- Views for people who ask by hand: what items and schedules are in the words of the apps that they belong to.
--
--   duly_reminders    phone calls: scheduled, processing, completed, pending_retry, failed, cancelled.
--   duly_retry_queue  messages between queues: pending, retried, failed, cancelled.
--   duly_products     a catalog: pending, syncing, success, failed.
--   duly_events       birthdays: PENDING, PROCESSING, COMPLETED, FAILED, CANCELLED.
--
-- Times are text in UTC, such as 2026-12-01 08:00:00.000000: they compare with current_timestamp, and julianday() and
-- strftime() understand them. Payloads are base64, for SQLite has no function that decodes it.

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

create view duly_retry_queue as
select id,
       json_extract(args, '$.message_id') as message_id,
       json_extract(args, '$.payload') as original_payload,
       coalesce(json_extract(args, '$.queue'), '') as original_queue,
       coalesce(json_extract(args, '$.problem'), json_extract(args, '$.reason'), '') as error_reason,
       coalesce(json_extract(args, '$.retry_count'), 0) as retry_count,
       coalesce(json_extract(args, '$.max_retries'), 3) as max_retries,
       datetime(due_at / 1000000, 'unixepoch') || printf('.%06d', due_at % 1000000) as next_retry_at,
       datetime(created_at / 1000000, 'unixepoch') || printf('.%06d', created_at % 1000000) as created_at,
       case
           when state in ('waiting', 'running') then 'pending'
           when state = 'done' then 'retried'
           else state
       end as status,
       substr(last_error, 1, instr(last_error || char(10), char(10)) - 1) as last_error
  from duly_item
 where task = 'message_retry' and not coalesce(json_extract(args, '$.is_undecided'), 0);

create view duly_products as
select s.id,
       json_extract(s.args, '$.user_id') as user_id,
       json_extract(s.args, '$.sku') as sku,
       s.slot as hour_bucket,
       case
           when i.state = 'running' then 'syncing'
           when i.state = 'waiting' and i.lane = 'main' then 'pending'
           when i.state = 'done' then 'success'
           when s.failures > 0 then 'failed'
           when s.last_success_at is not null and i.state is not 'failed' then 'success'
           else 'pending'
       end as sync_status,
       datetime(coalesce(i.started_at, s.last_success_at) / 1000000, 'unixepoch')
           || printf('.%06d', coalesce(i.started_at, s.last_success_at) % 1000000) as last_sync_at,
       json_extract(s.keep, '$.success_on') as last_successful_sync,
       s.failures as consecutive_failures,
       substr(s.last_error, 1, min(500, instr(s.last_error || char(10), char(10)) - 1)) as last_error,
       s.paused_at is null and s.broken_at is null as is_active,
       s.fingerprint as last_boeing_hash,
       json_extract(s.keep, '$.price') as last_price,
       json_extract(s.keep, '$.quantity') as last_quantity,
       datetime(s.created_at / 1000000, 'unixepoch') || printf('.%06d', s.created_at % 1000000) as created_at,
       datetime(s.changed_at / 1000000, 'unixepoch') || printf('.%06d', s.changed_at % 1000000) as updated_at
  from (select duly_schedule.*,
               max(created_at, coalesce(last_success_at, 0), coalesce(broken_at, 0), coalesce(paused_at, 0),
                   coalesce((select max(started_at, coalesce(finished_at, 0)) from duly_item where id = last_item), 0)
               ) as changed_at
          from duly_schedule
         where task = 'catalog.sync') s left join duly_item i on i.id = s.last_item;

-- What has become due, and of each person the event to come, which is no item yet and has no id.
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
                   when state = 'done' then 'COMPLETED'
                   else upper(state)
               end as status,
               attempt as attempts,
               case when state = 'done' then finished_at end as executed,
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
