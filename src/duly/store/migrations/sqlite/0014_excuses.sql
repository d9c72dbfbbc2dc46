-- Why the last try of an item was given back, how often its failures were not counted because its source was down, and
-- what is wrong with a worker. Older workers write none of it, and go on beside newer ones.

alter table duly_item add column excuses integer not null default 0;
alter table duly_item add column cause text;

alter table duly_worker add column runaways integer not null default 0;
alter table duly_worker add column ailing text;
