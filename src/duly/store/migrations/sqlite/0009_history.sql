-- History: what happened lately, for charts, in steps of 10 seconds and of 5 minutes.
--
--   duly_history  of one step of time: what workers measured of one subject (a task, a pace or a job). `n` is how often
--                 it happened or was measured, `total` the sum of the measured values and `most` the largest of them.
--                 Every worker adds what it has counted to the same rows now and then. Losing some of that in a crash
--                 harms nothing, so it is never a part of other transactions.

create table duly_history (
    step     integer not null,
    bucket   integer not null,
    kind     text    not null,
    subject  text    not null,
    measure  text    not null,
    n        integer not null,
    total    real    not null,
    most     real    not null,
    primary key (step, bucket, kind, subject, measure)
) without rowid;

create index duly_history_subject on duly_history (kind, subject, step, bucket);
