-- What the views tell is what the apps tell: a product was not synced by an item that was skipped, is pending again once
-- it was reactivated, and has a price with all its digits; a birthday that was too late to be sent is not completed.

create or replace view duly_products as
select s.id,
       s.args ->> 'user_id' as user_id,
       s.args ->> 'sku' as sku,
       s.slot as hour_bucket,
       case
           when i.state = 'running' then 'syncing'
           when i.state = 'waiting' and i.lane = 'main' then 'pending'
           when i.state = 'done' then 'success'
           when s.failures > 0 then 'failed'
           when i.state = 'failed' or i.outcome = 'discarded' then 'pending'
           when s.last_success_at is not null then 'success'
           else 'pending'
       end as sync_status,
       coalesce(case when i.outcome is distinct from 'skipped' then i.started_at end,
                (s.keep ->> 'synced_at')::timestamptz, s.last_success_at) as last_sync_at,
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
