-- Jobs: groups of items, each with a queue of its own, whose rows are counted.
--
--   duly_job   one job: its rows so far, how many of them have ended how, and what is put when the last one has.
--
-- What lists of rows are ordered by is null on items that belong to no job, and is never written there: an update of an
-- item stays a heap-only one as long as no column changes that any index has, also an index that the row is not in.

create table duly_job (
    id           bigint      generated always as identity primary key,
    task         text        collate "C" not null,
    queue        text        collate "C" not null,
    key          text        collate "C",
    owner        text        collate "C",
    then_item    json,
    then_id      bigint,
    options      json        not null default '{}',
    total        bigint      not null default 0,
    done         bigint      not null default 0,
    not_found    bigint      not null default 0,
    failed       bigint      not null default 0,
    skipped      bigint      not null default 0,
    is_sealed    boolean     not null default false,
    created_at   timestamptz not null,
    changed_at   timestamptz not null,
    finished_at  timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

create unique index duly_job_key on duly_job (task, coalesce(owner, ''), key) where key is not null;
create index duly_job_owner on duly_job (owner, id);

alter table duly_item add column job_id bigint;
alter table duly_item add column row_no bigint;
alter table duly_item add column status text collate "C";
alter table duly_item add column changed_at timestamptz;
alter table duly_item add column input json;

create unique index duly_item_row on duly_item (job_id, row_no) where job_id is not null;
create index duly_item_job on duly_item (job_id, status, changed_at, id) where job_id is not null;
create index duly_item_status on duly_item (status, owner, changed_at, id) where job_id is not null and status <> 'DONE';
