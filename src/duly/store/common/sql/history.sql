-- What happened lately, for charts.

-- name: history
-- What was measured of tasks and paces since then, in steps of this length, the latest first.
select {history_row}
  from duly_history
 where step = :step and bucket >= :since and kind <> 'job' and {given measure}
 order by bucket desc, kind, subject, measure
 limit :most

-- name: history_of
-- The same of one task, pace or job, by an index of its own.
select {history_row}
  from duly_history
 where kind = :kind and subject = :subject and step = :step and bucket >= :since and {given measure}
 order by bucket desc, measure
 limit :most

-- name: lately
-- What happened to each task since then.
select subject, measure, sum(n), sum(total)
  from duly_history
 where step = :step and bucket >= :since and kind = 'task'
 group by subject, measure

-- name: pace_rates
-- The calls of each pace, step by step: in short steps of the last minutes, and in long steps of the last hours.
select subject, step, n
  from duly_history
 where ((step = :short and bucket >= :short_since) or (step = :long and bucket >= :long_since))
   and kind = 'pace' and measure = 'rate'
