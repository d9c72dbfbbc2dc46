-- Lines: items that wait behind one another are those of one queue, lane, rank, task and owner. Each worker asks for
-- lines of tasks that it has, and nobody's line is hidden behind another's.

create index duly_item_line on duly_item (queue, lane, rank, task, coalesce(owner, ''), due_at, id)
 where state = 'waiting';
drop index duly_item_due;

-- What falls due next, and what has just fallen due, however many lines there are.
create index duly_item_soon on duly_item (due_at) where state = 'waiting';

-- How many calls are under way under a limit.
create index duly_lease_metered on duly_lease (fence) where meters is not null;

create index duly_queue_paused on duly_queue (name) where paused_at is not null;
