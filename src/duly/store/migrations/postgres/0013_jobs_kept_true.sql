-- Lists over all jobs, by when a row changed last. Rows that are worked on are found by their leases, and rows that are done
-- are in no such list. So a row that is claimed and succeeds writes nothing here.

create index duly_item_listed on duly_item (status, changed_at, id) where status not in ('DONE', 'PROCESSING');

-- Workers: the newest migration that each knows, and why it claims nothing. Workers that do not know the least one neither
-- start nor claim: before migration 8 they would end rows of jobs without counting them.

alter table duly_worker add column migration integer;
alter table duly_worker add column hindrance text;

create table duly_least (
    migration  integer not null
);

insert into duly_least (migration) values (8);
