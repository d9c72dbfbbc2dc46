-- duly_reminders  phone calls: scheduled, processing, completed, pending_retry, failed, cancelled.

create or replace view duly_reminders as
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
