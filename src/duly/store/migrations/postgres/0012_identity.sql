-- Which database this is, so that a put on a connection of the caller's own can tell whether it leads here.
--
-- A copy that becomes a database of its own gets an id of its own: update duly_database set id = default.

create table duly_database (
    is_only  boolean  primary key default true check (is_only),
    id       uuid     not null default gen_random_uuid()
);

insert into duly_database default values;

-- Transactional puts of tests in virtual time: a row says that the transaction of its put has committed. It is never
-- work: workers do not read this table.
create table duly_virtual_put (
    id      uuid         primary key,
    put_at  timestamptz  not null default clock_timestamp()
);
