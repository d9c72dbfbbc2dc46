-- Acts on many rows have a table of their own name.
--
--   duly_act   one action on all rows that fit a filter, as durable work with a place where it stands.
--   duly_bulk  the same under its name of before, for processes that still say so; until 1.0.

alter table duly_bulk rename to duly_act;
alter index duly_bulk_pkey rename to duly_act_pkey;
alter index duly_bulk_owner rename to duly_act_owner;
alter sequence duly_bulk_id_seq rename to duly_act_id_seq;

create view duly_bulk as select * from duly_act;
