-- Items whose key is theirs for good: a newer version of the same thing arms its row again instead of making another.

alter table duly_item
    add column version   bigint,                           -- null: the key is free again when the item has ended
    add column revivals  integer not null default 0;       -- times a person had it tried again after it had ended

create unique index duly_item_version on duly_item (task, key) where version is not null;
