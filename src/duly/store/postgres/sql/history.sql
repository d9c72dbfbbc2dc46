-- What happened lately, for charts.

-- name: add_history
-- Adds these measures to the steps that begin then; a step whose beginning is null is not kept. In the order of the
-- key, so that two workers never wait for each other.
insert into duly_history (step, bucket, kind, subject, measure, n, total, most)
select s.step, s.bucket, r.kind, r.subject, r.measure, r.n, r.total, r.most
  from (values (:short, :short_bucket::timestamptz), (:long, :long_bucket::timestamptz)) as s(step, bucket)
 cross join json_to_recordset(:rows::json)
       as r(kind text, subject text, measure text, n bigint, total double precision, most double precision)
 where s.bucket is not null
 order by s.step, s.bucket, r.kind collate "C", r.subject collate "C", r.measure collate "C"
    on conflict (step, bucket, kind, subject, measure) do update
   set n = duly_history.n + excluded.n,
       total = duly_history.total + excluded.total,
       most = greatest(duly_history.most, excluded.most)

-- name: forget_history
-- The next portion of the steps of this length that are old enough, but for what another worker is about to forget.
delete from duly_history
 where ctid = any(array(select ctid from duly_history
                         where step = :step and bucket < :before
                         order by bucket
                         limit :most
                           for update skip locked))
returning 1
