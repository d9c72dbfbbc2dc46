-- The migrations of plug-ins that were applied. Each has numbers of its own.
--
-- The views of duly's own apps, and the table of the look-ups of enrichment, were created by migrations 0006, 0008 and 0010
-- before this one existed. They belong to their apps now, whose own migrations create or replace them. A database that
-- has them keeps them.

create table duly_app_migration (
    app         text        not null,
    version     integer     not null,
    name        text        not null,
    applied_at  timestamp   not null default current_timestamp,
    primary key (app, version)
);
