-- Jobs: groups of items, each with a queue of its own, whose rows are counted.
--
--   duly_job           one job: its rows so far, how many of them have ended how, and what is put when the last one has.
--   duly_file          a file that someone sent: what it is, whose, and where its bytes are kept.
--   duly_mapping       which columns of files of one shape are which fields, as their owner last said.
--   duly_scanned       one version of one file that a scan found: the job that it became, or why it was refused. Whoever
--                      inserts its row takes it, in the transaction that makes its job, so each is taken once.
--   duly_jobs, duly_job_items   the same for people who ask by hand, in the words of lists of jobs.
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
    duplicates   integer not null default 0,
    job_type     text,
    file_id      integer,
    ip_address   text,
    attempts     integer not null default 0,
    last_error   text,
    is_removed   integer not null default 0,
    created_at   integer not null,
    changed_at   integer not null,
    finished_at  integer
);

create unique index duly_job_key on duly_job (task, coalesce(owner, ''), key) where key is not null;
create index duly_job_owner on duly_job (owner, id);
create index duly_job_live on duly_job (coalesce(owner, '')) where finished_at is null;
create index duly_job_over on duly_job (finished_at) where finished_at is not null;

create table duly_file (
    id           integer primary key autoincrement,
    name         text    not null,
    size         integer not null,
    type         text    not null,
    sha256       text    not null,
    place        text    not null,
    owner        text,
    created_at   integer not null
);

create index duly_file_place on duly_file (place);

create table duly_mapping (
    owner        text    not null,
    job_type     text    not null,
    fingerprint  text    not null,
    columns      text    not null,
    changed_at   integer not null,
    primary key (owner, job_type, fingerprint)
);

create table duly_scanned (
    source       text    not null,
    version      text    not null,
    name         text    not null,
    job_id       integer,
    reason       text,
    created_at   integer not null,
    primary key (source, version)
) without rowid;

alter table duly_item add column job_id integer;
alter table duly_item add column row_no integer;
alter table duly_item add column status text;
alter table duly_item add column changed_at integer;
alter table duly_item add column input text;

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
       datetime(j.changed_at / 1000000, 'unixepoch') || printf('.%06d', j.changed_at % 1000000) as last_heartbeat,
       j.attempts,
       j.last_error,
       j.job_type,
       j.owner as user_id,
       j.ip_address,
       j.file_id,
       datetime(j.created_at / 1000000, 'unixepoch') || printf('.%06d', j.created_at % 1000000) as created_at
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
       case when i.state = 'running'
            then datetime(i.started_at / 1000000, 'unixepoch') || printf('.%06d', i.started_at % 1000000)
       end as locked_at,
       datetime(i.changed_at / 1000000, 'unixepoch') || printf('.%06d', i.changed_at % 1000000) as updated_at
  from duly_item i
  join duly_job j on j.id = i.job_id;
