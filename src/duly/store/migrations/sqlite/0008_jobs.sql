-- Jobs: groups of items, each with a queue of its own, whose rows are counted.
--
--   duly_job   one job: its rows so far, how many of them have ended how, and what is put when the last one has.
--
-- What lists of rows are ordered by is null on items that belong to no job.

create table duly_job (
    id           integer primary key autoincrement,
    task         text    not null,
    queue        text    not null,
    key          text,
    owner        text,
    then_item    text,
    then_id      integer,
    options      text    not null default '{}',
    total        integer not null default 0,
    done         integer not null default 0,
    not_found    integer not null default 0,
    failed       integer not null default 0,
    skipped      integer not null default 0,
    is_sealed    integer not null default 0,
    created_at   integer not null,
    changed_at   integer not null,
    finished_at  integer
);

create unique index duly_job_key on duly_job (task, coalesce(owner, ''), key) where key is not null;
create index duly_job_owner on duly_job (owner, id);

alter table duly_item add column job_id integer;
alter table duly_item add column row_no integer;
alter table duly_item add column status text;
alter table duly_item add column changed_at integer;
alter table duly_item add column input text;

create unique index duly_item_row on duly_item (job_id, row_no) where job_id is not null;
create index duly_item_job on duly_item (job_id, status, changed_at, id) where job_id is not null;
create index duly_item_status on duly_item (status, owner, changed_at, id) where job_id is not null and status <> 'DONE';
