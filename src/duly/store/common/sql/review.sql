-- Failures that wait for a person, and what people wrote about them.

-- name: groups
-- Failures in review, grouped by what they have in common, the largest groups first; after a group of this size and id.
select error_group, min(task) as task, min(error_class) as error_class, count(*) as items, min(finished_at) as first_at,
       max(finished_at) as last_at, max(id) as sample
  from duly_item
 where {in_review} and error_group is not null and {given owner}
 group by error_group
having :size::bigint is null or count(*) < :size::bigint or (count(*) = :size::bigint and error_group > :after::text)
 order by items desc, error_group
 limit :most

-- name: group
select error_group, min(task) as task, min(error_class) as error_class, count(*) as items, min(finished_at) as first_at,
       max(finished_at) as last_at, max(id) as sample
  from duly_item
 where {in_review} and error_group = :error_group and {given owner}
 group by error_group

-- name: write_review_note
insert into duly_review_note (owner, error_group, author, text, at)
values (:owner, :error_group, :author, :text, :now)
returning id

-- name: review_notes
select {review_note}
  from duly_review_note
 where error_group = :error_group and {given owner}
 order by id desc
 limit :most

-- name: last_errors
select id, last_error from duly_item where {id_given} and {given owner}

-- name: review_totals
-- How many items are in review, and in how many groups, counted up to a bound; and how many were looked at.
select count(*), count(distinct error_group), count(*)
  from (select error_group from duly_item where {in_review} limit :most) r

-- name: own_review_totals
-- The same of the newest items of one owner.
select count(*) filter (where reviewed = 1), count(distinct case when reviewed = 1 then error_group end), count(*)
  from (select error_group, case when {in_review} then 1 else 0 end as reviewed
          from duly_item
         where owner = :owner
         order by id desc
         limit :most) r
