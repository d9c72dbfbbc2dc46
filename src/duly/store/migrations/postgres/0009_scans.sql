-- Scans of the places where files are dropped.
--
--   duly_scanned   one version of one file that was found there: the job that it became, or why it was refused.
--
-- A version is taken by whoever inserts its row, in the transaction that makes its job, so each is taken once.

create table duly_scanned (
    source       text        collate "C" not null,
    version      text        collate "C" not null,
    name         text        collate "C" not null,
    job_id       bigint,
    reason       text,
    created_at   timestamptz not null,
    primary key (source, version)
);
