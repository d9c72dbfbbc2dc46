-- The map of the nouns.
--
--   duly_item      one due row: what to do, when, and how it stands. The only table the hot path writes.
--   duly_attempt   the tries that did not succeed; a success is on the item itself.
--   duly_lease     one row per claim: its fence (never reused), until when it holds, and the items it covers.
--   duly_queue     what a person changed about a queue (paused). A queue without a row is open.
--
-- An item is waiting, running, done, failed (given up, in review) or cancelled. Everything else is derived.
-- Times are integer microseconds since 1970, UTC.

create table duly_item (
    id             integer primary key autoincrement,
    task           text    not null,
    queue          text    not null,
    lane           text    not null default 'main' check (lane in ('main', 'retry')),
    rank           integer not null default 0,
    state          text    not null default 'waiting'
                           check (state in ('waiting', 'running', 'done', 'failed', 'cancelled')),
    outcome        text,
    planned_at     integer not null,
    due_at         integer not null,
    key            text,
    execution_key  text    not null default (lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4'
                           || substr(hex(randomblob(2)), 2) || '-' || substr('89ab', 1 + (abs(random()) % 4), 1)
                           || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    args           text    not null,
    result         text,
    progress       text,
    attempt        integer not null default 0,
    max_attempts   integer,
    failures       integer not null default 0,
    crashes        integer not null default 0,
    losses         integer not null default 0,
    fence          integer not null default 0,
    claimed_by     text,
    started_at     integer,
    finished_at    integer,
    last_error     text,
    error_class    text,
    trace          text,
    created_at     integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer))
);

create index duly_item_due on duly_item (queue, lane, rank, due_at, id) where state = 'waiting';

create unique index duly_item_key on duly_item (task, key) where key is not null and state in ('waiting', 'running');

create index duly_item_review on duly_item (id) where state = 'failed';

create table duly_lease (
    fence        integer primary key autoincrement,
    worker       text    not null,
    lease_until  integer not null,
    items        text    not null
);

create table duly_attempt (
    item_id      integer not null references duly_item (id) on delete cascade,
    number       integer not null,
    fence        integer not null,
    attempt_key  text    not null unique,
    worker       text,
    started_at   integer,
    ended_at     integer not null,
    outcome      text    not null,
    error        text,
    error_class  text,
    primary key (item_id, fence)
) without rowid;

create table duly_queue (
    name       text primary key,
    paused_at  integer
) without rowid;
