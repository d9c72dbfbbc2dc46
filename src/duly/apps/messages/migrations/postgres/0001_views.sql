-- duly_retry_queue  messages between queues: pending, retried, failed, cancelled.

create or replace view duly_retry_queue as
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
