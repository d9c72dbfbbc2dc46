-- Lists over all jobs, by when a row changed last. Rows that are worked on are found by their leases, and rows that are done
-- are in no such list. So a row that is claimed and succeeds writes nothing here.

create index duly_item_listed on duly_item (status, changed_at, id) where status not in ('DONE', 'PROCESSING');
