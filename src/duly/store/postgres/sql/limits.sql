-- Meters behind limits.

-- name: meters
-- What was set and granted. One look at the index per name, whatever the planner knows of the table.
select {meter of m}
  from unnest(:names::text[]) as n(name)
 cross join lateral (select * from duly_meter where name = n.name limit 1) m

-- name: lock_meters
-- The same, locked in this order, each with the time when it was.
with locked as materialized (
    select {meter of m}
      from unnest(:names::text[]) as n(name)
     cross join lateral (select * from duly_meter where name = n.name for update) m)
select {meter}, coalesce(:now::timestamptz, clock_timestamp()) from locked

-- name: new_meters
-- In this order, as they are locked.
insert into duly_meter (name)
select name from unnest(:names::text[]) with ordinality as n(name, place) order by place
    on conflict (name) do nothing

-- name: keep_hits
-- For meters that are locked.
update duly_meter m
   set hits = n.hits::timestamptz[]
  from unnest(:names::text[], :hits::text[]) as n(name, hits)
 where m.name = n.name

-- name: unstart
-- These items were claimed for a call that did not begin.
update duly_item i
   set started_at = null
  from unnest(:id::bigint[], :fence::bigint[]) as n(id, fence)
 where i.id = any(:id::bigint[]) and i.id = n.id and i.fence = n.fence and i.state = 'running'

-- name: by_index
-- For the rest of a transaction. Leases come and go by the thousand: a walk along an index passes over the remains of
-- those that are gone, where a scan of the table, or of a bitmap, looks at each of them until the next vacuum. Nor is it
-- worth the start of a process for each claim to share a walk that only seems long.
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true)

-- name: under_way
-- How many leases stand under each of these meters.
select m, count(*)
  from duly_lease l cross join unnest(l.meters) m
 where l.meters is not null and m = any(:names::text[])
 group by m

-- name: meter_use
-- How far each of these meters is used: as Use has it. What a person has set counts in place of what is given.
select place, most, per, most - most / 10 as nearly,
       case when most > 0 then hits[cardinality(hits) - (most - most / 10) + 1] end as since,
       hits[cardinality(hits)] as at, under_way
  from (select n.place, coalesce(m.most, n.most) as most, coalesce(m.per, n.per) as per, m.hits,
               coalesce(u.under_way, 0) as under_way
          from json_to_recordset(:meters::json) as n(place int, name text, most int, per float8)
          left join duly_meter m on m.name = n.name
          left join (select h as name, count(*) as under_way
                       from duly_lease l cross join unnest(l.meters) h
                      where l.meters is not null
                      group by h) u on u.name = n.name) s

-- name: idle_meters
-- Meters that were not set by hand and granted nothing since then, by name, with the time of the last grant.
select name, hits[cardinality(hits)] as at
  from duly_meter
 where name > :after and most is null and (cardinality(hits) = 0 or hits[cardinality(hits)] < :before)
 order by name
 limit :most

-- name: forget_meters
-- Those of these that are idle still. They are locked in this order, as claims do, so that none wait in a ring.
with idle as materialized (
    select m.name
      from json_array_elements_text(:names::json) with ordinality as n(name, place)
     cross join lateral (
           select name
             from duly_meter
            where name = n.name and most is null and (cardinality(hits) = 0 or hits[cardinality(hits)] < :before)
              for update) m)
delete from duly_meter where name in (select name from idle)

-- name: all_under_way
-- How many leases stand under each meter of calls at the same time.
select m, count(*) from duly_lease l cross join unnest(l.meters) m where l.meters is not null group by m
