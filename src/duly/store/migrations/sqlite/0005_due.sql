-- What is due soonest, whatever its queue.

create index duly_item_soon on duly_item (due_at) where state = 'waiting';
