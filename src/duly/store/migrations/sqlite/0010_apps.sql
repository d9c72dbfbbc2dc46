-- What the views tell is what the apps tell: a product was not synced by an item that was skipped, is pending again once
-- it was reactivated, and has a price with all its digits; a birthday that was too late to be sent is not completed.

drop view duly_products;
drop view duly_events;

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
