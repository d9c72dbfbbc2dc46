-- duly_retry_queue  messages between queues: pending, retried, failed, cancelled.
--
-- Times are text in UTC, such as 2026-12-01 08:00:00.000000: they compare with current_timestamp, and julianday() and
-- strftime() understand them. Payloads are base64, for SQLite has no function that decodes it.

drop view if exists duly_retry_queue;

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
