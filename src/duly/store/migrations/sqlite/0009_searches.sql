-- Questions to providers belong to a try of an item, and go with their item. Nothing has written any before.
--
--   round    how many rounds of questions had found nothing when this one was asked: where the next try goes on.
--   attempt  the number of the try, and its fence, which no other try has: a try tells of each of its questions once.

drop table duly_search_event;

create table duly_search_event (
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

create unique index duly_search_event_pkey on duly_search_event (item_id, fence, variant, retailer);
create unique index duly_search_event_job on duly_search_event (job_id, id) where job_id is not null;
