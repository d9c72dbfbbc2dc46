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

-- name: begin_ids
-- Before the first row of a table, its sequence does not exist.
insert into sqlite_sequence (name, seq)
select :name, 0 where not exists (select 1 from sqlite_sequence where name = :name)

-- name: reserve_ids
-- Ids that no row of this table will get by itself; the last of them is returned.
update sqlite_sequence set seq = seq + :count where name = :name returning seq

-- name: move_item
-- An item gets the id and the key that were reserved for it.
update duly_item set id = :id, execution_key = :execution_key where id = :was

-- name: move_job
update duly_job set id = :id where id = :was
