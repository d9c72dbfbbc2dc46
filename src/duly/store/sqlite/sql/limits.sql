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

-- name: meter_use
-- How far each of these meters is used: as Use has it. What a person has set counts in place of what is given.
select place, most, per, most - most / 10 as nearly,
       case when most > 0 then json_extract(hits, '$[#-' || (most - most / 10) || ']') end as since,
       json_extract(hits, '$[#-1]') as at, under_way
  from (select json_extract(n.value, '$.place') as place, coalesce(m.most, json_extract(n.value, '$.most')) as most,
               coalesce(m.per, json_extract(n.value, '$.per')) as per, m.hits, coalesce(u.under_way, 0) as under_way
          from json_each(:meters) n
          left join duly_meter m on m.name = json_extract(n.value, '$.name')
          left join (select h.value as name, count(*) as under_way
                       from duly_lease l join json_each(l.meters) h
                      where l.meters is not null
                      group by h.value) u on u.name = json_extract(n.value, '$.name')) s

-- name: hit
insert into duly_meter (name, hits) values (:name, :hits) on conflict (name) do update set hits = excluded.hits

-- name: unstart
-- This item was claimed for a call that did not begin.
update duly_item set started_at = null where id = :id and fence = :fence and state = 'running'

-- name: idle_meters
-- Meters that were not set by hand and granted nothing since then, by name, with the time of the last grant.
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
