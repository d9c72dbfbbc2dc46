-- Questions to providers belong to a try of an item, and go with their item. Nothing has written any before.
--
--   round    how many rounds of questions had found nothing when this one was asked: where the next try goes on.
--   attempt  the number of the try, and its fence, which no other try has: a try tells of each of its questions once.

drop table duly_search_event;

-- There is no index by id alone: to find those of one job, the planner would walk along it over those of all others.
create table duly_search_event (
    id           bigint      generated always as identity,
    item_id      bigint      not null references duly_item (id) on delete cascade,
    job_id       bigint,
    attempt      integer     not null,
    fence        bigint      not null,
    round        integer     not null,
    variant      text        collate "C" not null,
    retailer     text        collate "C" not null,
    status       text        collate "C" not null,
    milliseconds integer     not null,
    created_at   timestamptz not null,
    primary key (item_id, fence, variant, retailer)
);

create unique index duly_search_event_job on duly_search_event (job_id, id) where job_id is not null;
