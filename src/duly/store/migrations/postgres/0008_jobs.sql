-- Jobs: groups of items, each with a queue of its own, whose rows are counted.
--
--   duly_job           one job: its rows so far, how many of them have ended how, and what is put when the last one has.
--   duly_file          a file that someone sent: what it is, whose, and where its bytes are kept.
--   duly_mapping       which columns of files of one shape are which fields, as their owner last said.
--   duly_scanned       one version of one file that a scan found: the job that it became, or why it was refused. Whoever
--                      inserts its row takes it, in the transaction that makes its job, so each is taken once.
--   duly_jobs, duly_job_items   the same for people who ask by hand, in the words of lists of jobs.
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
    duplicates   bigint      not null default 0,
    job_type     text        collate "C",
    file_id      bigint,
    ip_address   text        collate "C",
    attempts     integer     not null default 0,
    last_error   text,
    is_removed   boolean     not null default false,
    created_at   timestamptz not null,
    changed_at   timestamptz not null,
    finished_at  timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

create unique index duly_job_key on duly_job (task, coalesce(owner, ''), key) where key is not null;
create index duly_job_owner on duly_job (owner, id);
create index duly_job_live on duly_job (coalesce(owner, '')) where finished_at is null;
create index duly_job_over on duly_job (finished_at) where finished_at is not null;

create table duly_file (
    id           bigint      generated always as identity primary key,
    name         text        collate "C" not null,
    size         bigint      not null,
    type         text        collate "C" not null,
    sha256       text        collate "C" not null,
    place        text        collate "C" not null,
    owner        text        collate "C",
    created_at   timestamptz not null
);

create index duly_file_place on duly_file (place);

create table duly_mapping (
    owner        text        collate "C" not null,
    job_type     text        collate "C" not null,
    fingerprint  text        collate "C" not null,
    columns      json        not null,
    changed_at   timestamptz not null,
    primary key (owner, job_type, fingerprint)
);

create table duly_scanned (
    source       text        collate "C" not null,
    version      text        collate "C" not null,
    name         text        collate "C" not null,
    job_id       bigint,
    reason       text,
    created_at   timestamptz not null,
    primary key (source, version)
);

alter table duly_item add column job_id bigint;
alter table duly_item add column row_no bigint;
alter table duly_item add column status text collate "C";
alter table duly_item add column changed_at timestamptz;
alter table duly_item add column input json;

create unique index duly_item_row on duly_item (job_id, row_no) where job_id is not null;
create index duly_item_job on duly_item (job_id, status, changed_at, id) where job_id is not null;

create view duly_jobs as
select j.id,
       case
           when j.finished_at is not null then 'DONE'
           when j.last_error is not null and not j.is_sealed then 'FAILED'
           when exists (select 1 from duly_queue q
                         where q.paused_at is not null and q.name in (j.queue, j.queue || '/job-' || j.id)) then 'PAUSED'
           when j.done + j.not_found + j.failed + j.skipped > 0
             or exists (select 1 from duly_item i where i.job_id = j.id and i.status = 'PROCESSING') then 'RUNNING'
           else 'QUEUED'
       end as queue_state,
       j.total as total_items,
       j.done + j.not_found + j.failed + j.skipped as processed_items,
       j.failed as failed_items,
       j.changed_at as last_heartbeat,
       j.attempts,
       j.last_error,
       j.job_type,
       j.owner as user_id,
       j.ip_address,
       j.file_id,
       j.created_at as created_at
  from duly_job j
 where not j.is_removed;

create view duly_job_items as
select i.id,
       i.job_id,
       i.row_no,
       i.owner as user_id,
       j.job_type,
       i.status,
       i.input as input_json,
       i.args as normalized_json,
       i.result as result_json,
       i.attempt as attempts,
       i.last_error,
       case when i.state = 'running' then i.claimed_by end as locked_by,
       case when i.state = 'running' then i.started_at end as locked_at,
       i.changed_at as updated_at
  from duly_item i
  join duly_job j on j.id = i.job_id;
