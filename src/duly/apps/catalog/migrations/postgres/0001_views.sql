-- duly_products  a catalog: pending, syncing, success, failed. A product was not synced by an item that was skipped, and is
-- pending again once it was reactivated.

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
