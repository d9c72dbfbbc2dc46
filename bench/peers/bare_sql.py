"""The realistic 22-column table of the bare prototype and its two hot statements.

It has the columns of duly's item table, so that the rows weigh the same; floor.py probes the same statements.
"""

SCHEMA = """
create table item (
    id            bigint generated always as identity primary key,
    task          text not null,
    queue         text not null,
    lane          text not null default 'main',
    rank          smallint not null default 0,
    state         text not null default 'waiting',
    outcome       text,
    due_at        timestamptz not null default now(),
    key           text,
    execution_key uuid not null default gen_random_uuid(),
    args          jsonb not null,
    result        jsonb,
    attempt       int not null default 0,
    max_attempts  int not null default 3,
    failures      int not null default 0,
    fence         bigint,
    lease_until   timestamptz,
    claimed_by    text,
    started_at    timestamptz,
    finished_at   timestamptz,
    created_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now()
) with (fillfactor = 80);
create index item_waiting on item (queue, due_at, id) where state = 'waiting';
create index item_running on item (lease_until) where state = 'running';
"""

# Takes up to `batch` due rows that nobody else holds.
CLAIM = """
update item
   set state = 'running', attempt = attempt + 1, claimed_by = 'bare', started_at = now(),
       lease_until = now() + interval '20 seconds', updated_at = now()
 where id = any(array(
           select id from item
            where state = 'waiting' and queue = 'bench' and due_at <= now()
            order by due_at, id
            limit %(batch)s
              for update skip locked))
returning id, args
"""

# Marks the rows of one batch as done.
SETTLE = """
update item
   set state = 'done', outcome = 'done', lease_until = null, finished_at = now(), updated_at = now()
 where id = any(%(ids)s)
"""

COPY = "copy item (task, queue, args, due_at) from stdin"

INSERT = "insert into item (task, queue, args) values ('noop', 'bench', %(args)s)"

# An empty payload, so that the notifications of one transaction collapse into one.
PUT = """
with put as (insert into item (task, queue, args) values ('noop', 'bench', %(args)s))
select pg_notify('item', '')
"""

LEFT = "select count(*) from item where state in ('waiting', 'running') and due_at <= now()"

FINISHED = "select count(*) from item where state = 'done'"

FUTURE = """
insert into item (task, queue, args, due_at)
select 'noop', 'bench', jsonb_build_object('n', n, 'at', 0), now() + interval '1 year' + n * interval '1 second'
  from generate_series(1, %(n)s) n
"""

DONE = """
insert into item (task, queue, args, state, outcome, attempt, claimed_by, due_at, started_at, finished_at)
select 'noop', 'bench', jsonb_build_object('n', n, 'at', 0), 'done', 'done', 1, 'bare', seen, seen, seen
  from (select n, now() - n * interval '1 second' as seen from generate_series(1, %(n)s) n) rows
"""
