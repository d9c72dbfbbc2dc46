-- Acts on many rows have a table of their own name.
--
--   duly_act   one action on all rows that fit a filter, as durable work with a place where it stands.
--   duly_bulk  the same under its name of before, for who still reads it so; until 1.0.

alter table duly_bulk rename to duly_act;
drop index duly_bulk_owner;
create index duly_act_owner on duly_act (owner, id);

create view duly_bulk as select * from duly_act;
