-- What happened lately, for charts.

-- name: add_history
-- Adds these measures to the steps that begin then; a step whose beginning is null is not kept.
insert into duly_history (step, bucket, kind, subject, measure, n, total, most)
select s.step, s.bucket, json_extract(r.value, '$.kind'), json_extract(r.value, '$.subject'),
       json_extract(r.value, '$.measure'), json_extract(r.value, '$.n'), json_extract(r.value, '$.total'),
       json_extract(r.value, '$.most')
  from (select :short as step, :short_bucket as bucket union all select :long, :long_bucket) s
  join json_each(:rows) r
 where s.bucket is not null
    on conflict (step, bucket, kind, subject, measure) do update
   set n = n + excluded.n,
       total = total + excluded.total,
       most = max(most, excluded.most)

-- name: forget_history
-- The next portion of the steps of this length that are old enough.
delete from duly_history
 where (step, bucket, kind, subject, measure) in (select step, bucket, kind, subject, measure
                                                    from duly_history
                                                   where step = :step and bucket < :before
                                                   order by bucket
                                                   limit :most)
returning 1
