-- Time: schedules that make items, the seats of even slots, meters behind limits, who did what, and who is alive.
--
--   duly_schedule  a recurrence: its rule as people write it, where it stands, and how its subject fares.
--   duly_slot      how many active members each slot of a ring has; kept by triggers, exact at every commit.
--   duly_meter     the times of what was granted under a limit, and what a person set instead of the code's values.
--   duly_audit     who did what: people, and duly itself when it skips or deactivates something.
--   duly_worker    when each worker last said that it is alive.
--   duly_alert     what is wrong now, and whether someone has been told.

alter table duly_item add column schedule_id integer;
alter table duly_item add column streak integer;
alter table duly_item add column fingerprint text;
alter table duly_item add column expires_at integer;

-- One item per occurrence.
create unique index duly_item_occurrence on duly_item (schedule_id, planned_at) where schedule_id is not null;

-- What a claim holds of limits on calls at the same time, for as long as its lease lives.
alter table duly_lease add column meters text;

create table duly_schedule (
    id               integer primary key autoincrement,
    task             text    not null,
    key              text    not null,
    queue            text    not null,
    rank             integer not null default 0,
    args             text    not null,
    rule             text    not null,
    zone             text    not null,
    catch_up         text    not null check (catch_up in ('all', 'latest', 'skip')),
    max_lateness     real,
    overlap          text    not null check (overlap in ('allow', 'skip', 'supersede')),
    ring             text,
    slot             integer,
    is_declared      integer not null default 0,
    next_at          integer,
    paused_at        integer,
    broken_at        integer,
    failures         integer not null default 0,
    last_at          integer,
    last_item        integer,
    last_success_at  integer,
    last_error       text,
    fingerprint      text,
    unchanged        integer not null default 0,
    skipped          integer not null default 0,
    keep             text,
    created_at       integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer))
);

create unique index duly_schedule_key on duly_schedule (task, key);
create index duly_schedule_next on duly_schedule (next_at, id) where next_at is not null;
create index duly_schedule_declared on duly_schedule (id) where is_declared;
create index duly_schedule_broken on duly_schedule (id) where broken_at is not null;
create index duly_schedule_ring on duly_schedule (ring, slot, id) where ring is not null;

create table duly_slot (
    ring     text    not null,
    slot     integer not null,
    members  integer not null default 0,
    primary key (ring, slot)
) without rowid;

create trigger duly_seat_taken after insert on duly_schedule
  when new.ring is not null and new.paused_at is null and new.broken_at is null
begin
    insert into duly_slot (ring, slot, members) values (new.ring, new.slot, 1)
        on conflict (ring, slot) do update set members = members + 1;
end;

create trigger duly_seat_left after delete on duly_schedule
  when old.ring is not null and old.paused_at is null and old.broken_at is null
begin
    update duly_slot set members = members - 1 where ring = old.ring and slot = old.slot;
end;

create trigger duly_seat_changed after update of ring, slot, paused_at, broken_at on duly_schedule
  when old.ring is not new.ring or old.slot is not new.slot
       or (old.paused_at is null and old.broken_at is null) <> (new.paused_at is null and new.broken_at is null)
begin
    update duly_slot set members = members - 1
     where ring = old.ring and slot = old.slot and old.paused_at is null and old.broken_at is null;
    insert into duly_slot (ring, slot, members)
    select new.ring, new.slot, 1
     where new.ring is not null and new.paused_at is null and new.broken_at is null
        on conflict (ring, slot) do update set members = members + 1;
end;

create table duly_meter (
    name  text primary key,
    most  integer,
    per   real,
    hits  text not null default '[]'
) without rowid;

create table duly_audit (
    id       integer primary key autoincrement,
    at       integer not null,
    actor    text    not null,
    action   text    not null,
    subject  text    not null,
    details  text    not null
);

create index duly_audit_subject on duly_audit (subject, id);

create table duly_worker (
    name        text primary key,
    tasks       text    not null,
    started_at  integer not null,
    seen_at     integer not null,
    left_at     integer
) without rowid;

create table duly_alert (
    name        text primary key,
    since       integer not null,
    message     text    not null,
    details     text    not null,
    telling_at  integer,
    told_at     integer
) without rowid;
