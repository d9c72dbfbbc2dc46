-- Scans of the places where files are dropped, and the end of what is kept.
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

-- Jobs that have been over for long, and files by where they are kept, are found by whoever tidies up. Rows of jobs that
-- are on their way out are not shown, and there are few such jobs.
create index duly_job_over on duly_job (finished_at) where finished_at is not null;
create index duly_job_removed on duly_job (id) where is_removed;
create index duly_file_place on duly_file (place);
