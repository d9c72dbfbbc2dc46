-- Meters behind limits.

-- name: meters
select {meter} from duly_meter where name in (select value from json_each(:names))

-- name: under_way
-- How many leases stand under each of these meters.
select m.value, count(*)
  from duly_lease l
  join json_each(l.meters) m
 where l.meters is not null and m.value in (select value from json_each(:names))
 group by m.value

-- name: last_granted
-- When something was last granted under any of these meters, and whether calls under any of them are under way.
select (select max(json_extract(hits, '$[#-1]'))
          from duly_meter
         where name in (select value from json_each(:names))) as at,
       exists (select 1 from duly_lease l join json_each(l.meters) m
                where l.meters is not null and m.value in (select value from json_each(:names))) as is_under_way

-- name: hit
insert into duly_meter (name, hits) values (:name, :hits) on conflict (name) do update set hits = excluded.hits

-- name: idle_meters
-- Meters that nobody set and under which nothing was granted since, by name, with when something was last.
select name, json_extract(hits, '$[#-1]') as at
  from duly_meter
 where name > :after and most is null and coalesce(json_extract(hits, '$[#-1]'), 0) < :before
 order by name
 limit :most

-- name: forget_meters
-- Those of these that are idle still.
delete from duly_meter
 where name in (select value from json_each(:names)) and most is null
   and coalesce(json_extract(hits, '$[#-1]'), 0) < :before

-- name: all_under_way
-- How many leases stand under each meter of calls at the same time.
select m.value, count(*) from duly_lease l join json_each(l.meters) m where l.meters is not null group by m.value
