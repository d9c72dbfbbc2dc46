-- The service: who owns what, who may come in, and what people do to many rows at once.
--
--   duly_user         people and programs, by role.
--   duly_key          API keys: a prefix to find them by, and a hash of the rest.
--   duly_session      browsers that signed in: a hash of their cookie.
--   duly_secret       what all processes of a service share to sign with.
--   duly_reply        what a POST with an Idempotency-Key was answered, so that its repetition is.
--   duly_review_note  what people wrote about a group of failures.
--   duly_bulk         one action on all rows that fit a filter, as durable work with a place where it stands.

alter table duly_item
    add column owner        text collate "C",              -- null: put by code, not by a person
    add column error_group  text collate "C",              -- failures with the same cause, by their look
    add column updated_at   timestamptz;                   -- when a person last changed it
alter table duly_schedule add column owner text collate "C";

create index duly_item_owner on duly_item (owner, id) where owner is not null;
create index duly_item_group on duly_item (error_group, id) where in_review;
create index duly_schedule_owner on duly_schedule (owner, id) where owner is not null;

create table duly_user (
    id           text        collate "C" primary key,
    role         text        not null check (role in ('user', 'admin')),
    password     text,                                     -- scrypt; null: keys only
    created_at   timestamptz not null,
    disabled_at  timestamptz
);

create table duly_key (
    id            text        collate "C" primary key,     -- its public prefix
    user_id       text        collate "C" not null references duly_user (id) on delete cascade,
    name          text        not null,
    hash          text        not null,
    scopes        json        not null,
    created_at    timestamptz not null,
    expires_at    timestamptz,
    last_used_at  timestamptz,
    revoked_at    timestamptz
);

create index duly_key_user on duly_key (user_id);

create table duly_session (
    hash        text        collate "C" primary key,
    user_id     text        collate "C" not null references duly_user (id) on delete cascade,
    created_at  timestamptz not null,
    expires_at  timestamptz not null
);

create index duly_session_user on duly_session (user_id);

create table duly_secret (
    name   text primary key,
    value  text not null
);

create table duly_reply (
    owner       text        collate "C" not null,
    key         text        collate "C" not null,
    request     text        not null,                      -- a hash of method, path and body
    status      integer,                                   -- null: under way
    answer      text,
    created_at  timestamptz not null,
    primary key (owner, key)
);

create index duly_reply_created on duly_reply (created_at);

create table duly_review_note (
    id           bigint generated always as identity primary key,
    owner        text        collate "C",
    error_group  text        collate "C" not null,
    author       text        not null,
    text         text        not null,
    at           timestamptz not null
);

create index duly_review_note_group on duly_review_note (error_group, id);

create table duly_bulk (
    id           bigint generated always as identity primary key,
    owner        text        collate "C",
    author       text        not null,
    action       text        not null check (action in ('cancel', 'retry', 'discard')),
    filter       json        not null,
    options      json        not null,
    state        text        not null default 'running' check (state in ('running', 'done', 'cancelled')),
    total        bigint      not null,
    seen         bigint      not null default 0,
    changed      bigint      not null default 0,
    place        bigint      not null default 0,           -- the last id that was looked at
    until        bigint      not null,                     -- the newest id when it was ordered
    created_at   timestamptz not null,
    finished_at  timestamptz
);

create index duly_bulk_owner on duly_bulk (owner, id);
