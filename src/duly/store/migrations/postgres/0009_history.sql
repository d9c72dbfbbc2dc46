-- History: what happened lately, for charts, in steps of 10 seconds and of 5 minutes.
--
--   duly_history  of one step of time: what workers measured of one subject (a task, a pace or a job). `n` is how often
--                 it happened or was measured, `total` the sum of the measured values and `most` the largest of them.
--                 Every worker adds what it has counted to the same rows now and then. Losing some of that in a crash
--                 harms nothing, so it is never a part of other transactions.

create table duly_history (
    step     integer          not null,
    bucket   timestamptz      not null,
    kind     text             collate "C" not null,
    subject  text             collate "C" not null,
    measure  text             collate "C" not null,
    n        bigint           not null,
    total    double precision not null,
    most     double precision not null,
    primary key (step, bucket, kind, subject, measure)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

create index duly_history_subject on duly_history (kind, subject, step, bucket);
