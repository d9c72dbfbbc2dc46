-- duly_search_event  one question to the provider by a try of an item: in which variant, and how it ended. `round` is how
--                    many rounds of questions had found nothing before. A fence is of one try only, which writes each
--                    of its questions once.

-- There is no index by id alone: to find those of one job, the planner would walk along it over those of all others.
create table if not exists duly_search_event (
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

create unique index if not exists duly_search_event_job on duly_search_event (job_id, id) where job_id is not null;
