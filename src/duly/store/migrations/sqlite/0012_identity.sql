-- On PostgreSQL, the database gets an id. On SQLite there is nothing to note: a file is its own identity, so that a copy
-- of it is another database.

-- Transactional puts of tests in virtual time: a row says that the transaction of its put has committed. It is never
-- work: workers do not read this table.
create table duly_virtual_put (
    id      text     primary key,
    put_at  integer  not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer))
) without rowid;
