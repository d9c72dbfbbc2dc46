-- Items whose key is theirs for good: a newer version of the same thing arms its row again instead of making another.
--
--   version   null: the key is free again when the item has ended.
--   revivals  times a person had it tried again after it had ended.

alter table duly_item add column version integer;
alter table duly_item add column revivals integer not null default 0;

create unique index duly_item_version on duly_item (task, key) where version is not null;
