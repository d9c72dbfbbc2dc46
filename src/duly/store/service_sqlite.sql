-- The statements behind the service, one per named section; service_postgres.sql has the same names.

-- name: user_create
insert into duly_user (id, role, password, created_at) values (:id, :role, :password, :now)
    on conflict (id) do nothing
returning id

-- name: user
select id, role, created_at, disabled_at, (password is not null) as has_password from duly_user where id = :id

-- name: users
select id, role, created_at, disabled_at, (password is not null) as has_password
  from duly_user
 where id > :after
 order by id
 limit :most

-- name: user_change
-- What is null stays as it is.
update duly_user
   set role = coalesce(:role, role),
       password = coalesce(:password, password),
       disabled_at = case when :is_disabled is null then disabled_at when :is_disabled then :now end
 where id = :id

-- name: password_anew
-- The same password by another hash, unless it was changed meanwhile.
update duly_user set password = :password where id = :id and password = :was

-- name: password
select password, disabled_at from duly_user where id = :id

-- name: anybody
-- Whether anyone could come in.
select exists (select 1 from duly_user u
                where u.disabled_at is null
                  and (u.password is not null
                       or exists (select 1 from duly_key k where k.user_id = u.id and k.revoked_at is null)))

-- name: key_create
insert into duly_key (id, user_id, name, hash, scopes, created_at, expires_at)
values (:id, :user_id, :name, :hash, :scopes, :now, :expires_at)

-- name: key
select id, user_id, name, scopes, created_at, expires_at, last_used_at, revoked_at
  from duly_key
 where id = :id and (:user_id is null or user_id = :user_id)

-- name: keys
select id, user_id, name, scopes, created_at, expires_at, last_used_at, revoked_at
  from duly_key
 where id > :after and (:user_id is null or user_id = :user_id)
 order by id
 limit :most

-- name: key_owner
select k.hash, u.id, u.role, k.scopes, k.expires_at, k.revoked_at, u.disabled_at, k.last_used_at
  from duly_key k
  join duly_user u on u.id = k.user_id
 where k.id = :id

-- name: key_used
update duly_key set last_used_at = :now where id = :id

-- name: key_revoke
update duly_key
   set revoked_at = coalesce(revoked_at, :now)
 where id = :id and (:user_id is null or user_id = :user_id)
returning id

-- name: session_create
-- For someone whose password is still the one that was compared; nothing for others.
insert into duly_session (hash, user_id, created_at, expires_at)
select :hash, id, :now, :expires_at
  from duly_user
 where id = :user_id and disabled_at is null and password = :was
returning user_id

-- name: session
select u.id, u.role
  from duly_session s
  join duly_user u on u.id = s.user_id
 where s.hash = :hash and s.expires_at > :now and u.disabled_at is null

-- name: session_end
delete from duly_session where hash = :hash returning user_id

-- name: sessions_end
delete from duly_session where user_id = :user_id

-- name: sessions_prune
delete from duly_session where expires_at <= :now

-- name: secret
-- A secret that all processes of a service share; whoever comes first makes it.
insert into duly_secret (name, value) values (:name, :value)
    on conflict (name) do update set name = duly_secret.name
returning value

-- name: reply_begin
-- Takes this key for a request, in the transaction of its effect; nothing when it is taken.
insert into duly_reply (owner, key, request, created_at) values (:owner, :key, :request, :now)
    on conflict (owner, key) do nothing
returning key

-- name: reply
select request, status, answer from duly_reply where owner = :owner and key = :key

-- name: reply_end
update duly_reply set status = :status, answer = :answer where owner = :owner and key = :key

-- name: replies_prune
delete from duly_reply where created_at < :before

-- name: owned_items
-- A page of items, newest first; the owner is in the predicate, null only for those who may see all.
select id, task, queue, lane, rank, state, outcome, planned_at, due_at, key, execution_key, args, result,
       progress, attempt, max_attempts, failures, crashes, losses, fence, claimed_by, started_at, finished_at,
       last_error, error_class, created_at, owner, error_group, schedule_id
  from duly_item
 where (:owner is null or owner = :owner)
   and id < :before
   and (:state is null or state = :state)
   and (:task is null or task = :task)
   and (:queue is null or queue = :queue)
   and (:key is null or key = coalesce(owner || '/', '') || :key)
   and (:error_group is null or error_group = :error_group)
   and (:schedule_id is null or schedule_id = :schedule_id)
 order by id desc
 limit :most

-- name: owned_failed
-- The same for review only, by its own index.
select id, task, queue, lane, rank, state, outcome, planned_at, due_at, key, execution_key, args, result,
       progress, attempt, max_attempts, failures, crashes, losses, fence, claimed_by, started_at, finished_at,
       last_error, error_class, created_at, owner, error_group, schedule_id
  from duly_item
 where state = 'failed'
   and (:owner is null or owner = :owner)
   and id < :before
   and (:task is null or task = :task)
   and (:queue is null or queue = :queue)
   and (:key is null or key = coalesce(owner || '/', '') || :key)
   and (:error_group is null or error_group = :error_group)
   and (:schedule_id is null or schedule_id = :schedule_id)
 order by id desc
 limit :most

-- name: owned_item
select id, task, queue, lane, rank, state, outcome, planned_at, due_at, key, execution_key, args, result,
       progress, attempt, max_attempts, failures, crashes, losses, fence, claimed_by, started_at, finished_at,
       last_error, error_class, created_at, owner, error_group, schedule_id
  from duly_item
 where id = :id and (:owner is null or owner = :owner)

-- name: item_version
select updated_at from duly_item where id = :id

-- name: edit_item
-- Another content for an item that is not running, if nobody was faster.
update duly_item
   set args = :args, due_at = :due_at, rank = :rank, updated_at = :now
 where id = :id and state = :was and fence = :fence and state in ('waiting', 'failed')
   and updated_at is :version
   and (:owner is null or owner = :owner)
returning id

-- name: schedules_page
select id, task, key, queue, rank, args, rule, zone, catch_up, max_lateness, overlap, ring, slot, is_declared, next_at,
       paused_at, broken_at, failures, last_at, last_item, last_success_at, last_error, fingerprint, unchanged, skipped,
       keep, created_at, owner
  from duly_schedule
 where (:owner is null or owner = :owner)
   and id > :after
   and (:task is null or task = :task)
   and (:key is null or key = coalesce(owner || '/', '') || :key)
   and (:ring is null or ring = :ring)
   and (:slot is null or slot = :slot)
   and (:state is null
        or case when broken_at is not null then 'broken' when paused_at is not null then 'paused' else 'active' end
           = :state)
 order by id
 limit :most

-- name: groups
-- Failures in review by their look, the largest groups first; after a group of this size and id.
select error_group, min(task) as task, min(error_class) as error_class, count(*) as items, min(finished_at) as first_at,
       max(finished_at) as last_at, max(id) as sample
  from duly_item
 where state = 'failed' and error_group is not null and (:owner is null or owner = :owner)
 group by error_group
having :size is null or count(*) < :size or (count(*) = :size and error_group > :after)
 order by items desc, error_group
 limit :most

-- name: group
select error_group, min(task) as task, min(error_class) as error_class, count(*) as items, min(finished_at) as first_at,
       max(finished_at) as last_at, max(id) as sample
  from duly_item
 where state = 'failed' and error_group = :error_group and (:owner is null or owner = :owner)
 group by error_group

-- name: write_review_note
insert into duly_review_note (owner, error_group, author, text, at)
values (:owner, :error_group, :author, :text, :now)
returning id

-- name: review_notes
select id, author, text, at
  from duly_review_note
 where error_group = :error_group and (:owner is null or owner = :owner)
 order by id desc
 limit :most

-- name: bulk_create
insert into duly_bulk (owner, author, action, filter, options, total, until, created_at)
values (:owner, :author, :action, :filter, :options, :total, :until, :now)
returning id

-- name: bulk
select id, owner, author, action, filter, options, state, total, seen, changed, place, until, created_at, finished_at
  from duly_bulk
 where id = :id and (:owner is null or owner = :owner)

-- name: bulks
select id, owner, author, action, filter, options, state, total, seen, changed, place, until, created_at, finished_at
  from duly_bulk
 where id < :before and (:owner is null or owner = :owner)
 order by id desc
 limit :most

-- name: bulk_begin
update duly_bulk set options = :options where id = :id and place = 0

-- name: bulk_move
-- Notes where it stands, unless it was cancelled or someone else went on from the same place.
update duly_bulk
   set seen = seen + :seen, changed = changed + :changed, place = :place
 where id = :id and state = 'running' and place = :was
returning place

-- name: bulk_finish
update duly_bulk set state = 'done', finished_at = :now where id = :id and state = 'running'

-- name: bulk_cancel
update duly_bulk
   set state = 'cancelled', finished_at = :now
 where id = :id and state = 'running' and (:owner is null or owner = :owner)
returning id

-- name: bulk_count
-- How many rows a filter means now, so many at most, and the newest row of all. Acts are about no other acts.
select count(*), (select coalesce(max(id), 0) from duly_item)
  from (select id from duly_item
         where task <> 'duly.acts'
           and (:owner is null or owner = :owner)
           and (:state is null or state = :state)
           and (:task is null or task = :task)
           and (:queue is null or queue = :queue)
           and (:error_group is null or error_group = :error_group)
         limit :most) d

-- name: bulk_page
-- The next rows of a filter, oldest first, up to the newest when it was ordered.
select id
  from duly_item
 where id > :place and id <= :until
   and task <> 'duly.acts'
   and (:owner is null or owner = :owner)
   and (:state is null or state = :state)
   and (:task is null or task = :task)
   and (:queue is null or queue = :queue)
   and (:error_group is null or error_group = :error_group)
 order by id
 limit :most

-- name: audit_ids
-- The ids of all lines after this one, and of those that were missing before it.
select id from duly_audit where id > :after
 union all
select id from duly_audit where id <= :after and id in (select value from json_each(:gaps))
 order by id
 limit :most

-- name: audit_lines
select id, at, actor, action, subject, details
  from duly_audit
 where id in (select value from json_each(:ids))
   and (:actor is null or actor = :actor)
 order by id

-- name: audit_last
select coalesce(max(id), 0) from duly_audit

-- name: audit_horizon
-- Writers take turns: whoever has an id is done before the next has one.
select 1, 1
