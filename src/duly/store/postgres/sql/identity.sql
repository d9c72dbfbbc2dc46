-- Which database a connection leads to, and transactional puts of tests in virtual time.

-- name: whereabouts
-- Never fails: also on a connection to any other database, whose transaction it must not abort.
select cast(current_database() as text), cast(current_schema() as text), host(inet_server_addr()), inet_server_port(),
       cast((select oid from pg_database where datname = current_database()) as text),
       cast(cast(to_regclass('duly_item') as oid) as text),
       coalesce(has_table_privilege(cast(to_regclass('duly_database') as oid), 'select'), false)

-- name: database_id
select cast(id as text) from duly_database

-- name: note_virtual_put
insert into duly_virtual_put (id) values (cast(:id as uuid))

-- name: virtual_puts
-- Those of these whose transactions have committed.
select cast(id as text)
  from duly_virtual_put
 where id in (select cast(e.value as uuid) from json_array_elements_text(:ids::json) as e(value))

-- name: forget_virtual_puts
-- These, and those of tests that have ended without taking them.
delete from duly_virtual_put
 where id in (select cast(e.value as uuid) from json_array_elements_text(:ids::json) as e(value)) or put_at < :before
