-- Questions to providers on behalf of items.

-- name: note_search
-- A try tells of each of its questions once.
insert into duly_search_event
       (item_id, job_id, attempt, fence, round, variant, retailer, status, milliseconds, created_at)
values (:item_id, :job_id, :attempt, :fence, :round, :variant, :retailer, :status, :milliseconds, :now)
    on conflict (item_id, fence, variant, retailer) do nothing

-- name: searches_of_item
select {search_event} from duly_search_event where item_id = :item_id order by id

-- name: searches_of_job
-- In the order in which they were told.
select {search_event}
  from duly_search_event
 where job_id = :job_id and id > :after::bigint
 order by id
 limit :most
