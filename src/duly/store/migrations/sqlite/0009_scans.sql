-- Scans of the places where files are dropped.
--
--   duly_scanned   one version of one file that was found there: the job that it became, or why it was refused.
--
-- A version is taken by whoever inserts its row, in the transaction that makes its job, so each is taken once.

create table duly_scanned (
    source       text    not null,
    version      text    not null,
    name         text    not null,
    job_id       integer,
    reason       text,
    created_at   integer not null,
    primary key (source, version)
) without rowid;
