-- duly_products  a catalog: pending, syncing, success, failed. A product was not synced by an item that was skipped, and is
-- pending again once it was reactivated.
--
-- Times are text in UTC, such as 2026-12-01 08:00:00.000000: they compare with current_timestamp, and julianday() and
-- strftime() understand them.

drop view if exists duly_products;

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
           when i.state = 'failed' or i.outcome = 'discarded' then 'pending'
           when s.last_success_at is not null then 'success'
           else 'pending'
       end as sync_status,
       case when i.started_at is not null and i.outcome is not 'skipped'
            then datetime(i.started_at / 1000000, 'unixepoch') || printf('.%06d', i.started_at % 1000000)
            when json_extract(s.keep, '$.synced_at') is not null
            then strftime('%Y-%m-%d %H:%M:%S', json_extract(s.keep, '$.synced_at'))
                 || case when instr(json_extract(s.keep, '$.synced_at'), '.')
                         then substr(json_extract(s.keep, '$.synced_at'), 20, 7) else '.000000' end
            else datetime(s.last_success_at / 1000000, 'unixepoch') || printf('.%06d', s.last_success_at % 1000000)
       end as last_sync_at,
       json_extract(s.keep, '$.success_on') as last_successful_sync,
       s.failures as consecutive_failures,
       substr(s.last_error, 1, min(500, instr(s.last_error || char(10), char(10)) - 1)) as last_error,
       s.paused_at is null and s.broken_at is null as is_active,
       s.fingerprint as last_boeing_hash,
       cast(json_extract(s.keep, '$.price') as numeric) as last_price,
       json_extract(s.keep, '$.quantity') as last_quantity,
       datetime(s.created_at / 1000000, 'unixepoch') || printf('.%06d', s.created_at % 1000000) as created_at,
       datetime(s.changed_at / 1000000, 'unixepoch') || printf('.%06d', s.changed_at % 1000000) as updated_at
  from (select duly_schedule.*,
               max(created_at, coalesce(last_success_at, 0), coalesce(broken_at, 0), coalesce(paused_at, 0),
                   coalesce((select max(started_at, coalesce(finished_at, 0)) from duly_item where id = last_item), 0)
               ) as changed_at
          from duly_schedule
         where task = 'catalog.sync') s left join duly_item i on i.id = s.last_item;
