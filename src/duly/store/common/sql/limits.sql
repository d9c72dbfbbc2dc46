-- Meters behind limits.

-- name: set_meter
insert into duly_meter (name, most, per) values (:name, :most, :per)
    on conflict (name) do update set most = excluded.most, per = excluded.per

-- name: all_meters
select {meter} from duly_meter where name > :after order by name limit :most

-- name: one_meter
select {meter} from duly_meter where name = :name
