-- duly_search_event  one question to the provider by a try of an item: in which variant, and how it ended. `round` is how
--                    many rounds of questions had found nothing before. A fence is of one try only, which writes each
--                    of its questions once.

create table if not exists duly_search_event (
    id           integer primary key autoincrement,
    item_id      integer not null references duly_item (id) on delete cascade,
    job_id       integer,
    attempt      integer not null,
    fence        integer not null,
    round        integer not null,
    variant      text    not null,
    retailer     text    not null,
    status       text    not null,
    milliseconds integer not null,
    created_at   integer not null
);

create unique index if not exists duly_search_event_pkey on duly_search_event (item_id, fence, variant, retailer);
create unique index if not exists duly_search_event_job on duly_search_event (job_id, id) where job_id is not null;
