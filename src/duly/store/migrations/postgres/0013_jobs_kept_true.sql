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

-- A job whose file was given up has failed, also when all the rows that came of it have ended.

drop view duly_jobs;

create view duly_jobs as
select j.id,
       case
           when j.last_error is not null and not j.is_sealed then 'FAILED'
           when j.finished_at is not null then 'DONE'
           when exists (select 1 from duly_queue q
                         where q.paused_at is not null and q.name in (j.queue, j.queue || '/job-' || j.id)) then 'PAUSED'
           when j.done + j.not_found + j.failed + j.skipped > 0
             or exists (select 1 from duly_item i where i.job_id = j.id and i.status = 'PROCESSING') then 'RUNNING'
           else 'QUEUED'
       end as queue_state,
       j.total as total_items,
       j.done + j.not_found + j.failed + j.skipped as processed_items,
       j.failed as failed_items,
       j.changed_at as last_heartbeat,
       j.attempts,
       j.last_error,
       j.job_type,
       j.owner as user_id,
       j.ip_address,
       j.file_id,
       j.created_at as created_at
  from duly_job j
 where not j.is_removed;
