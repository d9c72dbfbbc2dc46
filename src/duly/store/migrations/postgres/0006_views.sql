-- Views for people who ask by hand: what items and schedules are in the words of the apps that they belong to.
--
--   duly_reminders    phone calls: scheduled, processing, completed, pending_retry, failed, cancelled.
--   duly_retry_queue  messages between queues: pending, retried, failed, cancelled.
--   duly_products     a catalog: pending, syncing, success, failed.
--   duly_events       birthdays: PENDING, PROCESSING, COMPLETED, FAILED, CANCELLED.

create view duly_reminders as
select id,
       args ->> 'phone' as phone,
       args ->> 'message' as message,
       coalesce(args ->> 'name', '') as name,
       case
           when state = 'waiting' and (lane = 'retry' or outcome is not distinct from 'throttled') then 'pending_retry'
           when state = 'waiting' then 'scheduled'
           when state = 'running' then 'processing'
           when state = 'done' then 'completed'
           else state
       end as status,
       planned_at as date_time_utc,
       attempt as attempt_count,
       max_attempts,                                       -- null: what RETRY_MAX_ATTEMPTS says
       case when state = 'waiting' and (lane = 'retry' or outcome is not distinct from 'throttled')
            then due_at end as next_retry_at,
       split_part(last_error, chr(10), 1) as last_error,
       -- Of the latest try: one that was given back is not counted, but had its key.
       case when fence > 0 and tried > 0
            then id || '-' || tried || '-' || lpad(to_hex(fence), greatest(8, length(to_hex(fence))), '0')
       end as idempotency_key,
       execution_key,
       result ->> 'vapi_call_id' as vapi_call_id,
       owner,
       created_at
  from (select *,
               attempt + case when state = 'waiting' and outcome in ('throttled', 'released') then 1 else 0 end as tried
          from duly_item
         where task = 'remind') i;

create view duly_retry_queue as
select id,
       args ->> 'message_id' as message_id,
       decode(args ->> 'payload', 'base64') as original_payload,
       coalesce(args ->> 'queue', '') as original_queue,
       coalesce(args ->> 'problem', args ->> 'reason', '') as error_reason,
       coalesce((args ->> 'retry_count')::integer, 0) as retry_count,
       coalesce((args ->> 'max_retries')::integer, 3) as max_retries,
       due_at as next_retry_at,
       created_at,
       case
           when state in ('waiting', 'running') then 'pending'
           when state = 'done' then 'retried'
           else state
       end as status,
       split_part(last_error, chr(10), 1) as last_error
  from duly_item
 where task = 'message_retry' and not coalesce((args ->> 'is_undecided')::boolean, false);

create view duly_products as
select s.id,
       s.args ->> 'user_id' as user_id,
       s.args ->> 'sku' as sku,
       s.slot as hour_bucket,
       case
           when i.state = 'running' then 'syncing'
           when i.state = 'waiting' and i.lane = 'main' then 'pending'
           when i.state = 'done' then 'success'
           when s.failures > 0 then 'failed'
           when s.last_success_at is not null and i.state is distinct from 'failed' then 'success'
           else 'pending'
       end as sync_status,
       coalesce(i.started_at, s.last_success_at) as last_sync_at,
       (s.keep ->> 'success_on')::date as last_successful_sync,
       s.failures as consecutive_failures,
       left(split_part(s.last_error, chr(10), 1), 500) as last_error,
       s.paused_at is null and s.broken_at is null as is_active,
       s.fingerprint as last_boeing_hash,
       (s.keep ->> 'price')::numeric as last_price,
       (s.keep ->> 'quantity')::integer as last_quantity,
       s.created_at,
       greatest(s.created_at, s.last_success_at, i.started_at, i.finished_at, s.broken_at, s.paused_at) as updated_at
  from duly_schedule s left join duly_item i on i.id = s.last_item
 where s.task = 'catalog.sync';

-- What has become due, and of each person the event to come, which is no item yet and has no id.
create view duly_events as
select id,
       args ->> 'person_id' as user_id,
       planned_at as target_timestamp_utc,
       case
           when state = 'waiting' and failures > 0 then 'FAILED'
           when state = 'waiting' then 'PENDING'
           when state = 'running' then 'PROCESSING'
           when state = 'done' then 'COMPLETED'
           else upper(state)
       end as status,
       attempt as attempts,
       case when state = 'done' then finished_at end as executed_at,
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
