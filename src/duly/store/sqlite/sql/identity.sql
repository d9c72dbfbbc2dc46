-- Which database a connection leads to, and transactional puts of tests in virtual time.

-- name: whereabouts
-- The files of a connection, in the order in which a table is looked up, and whether they have the table.
select d.seq, d.file, exists (select 1 from pragma_table_list('duly_item') t where t.schema = d.name)
  from pragma_database_list d
 order by d.name <> 'temp', d.seq

-- name: note_virtual_put
insert into duly_virtual_put (id) values (:id)

-- name: virtual_puts
-- Those of these whose transactions have committed.
select id from duly_virtual_put where id in (select value from json_each(:ids))

-- name: forget_virtual_puts
-- These, and those of tests that have ended without taking them.
delete from duly_virtual_put where id in (select value from json_each(:ids)) or put_at < :before
