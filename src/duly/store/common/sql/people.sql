-- Users, their keys and sessions, and what their requests were answered.

-- name: user_create
insert into duly_user (id, role, password, created_at) values (:id, :role, :password, :now)
    on conflict (id) do nothing
returning id

-- name: user
select {user}, (password is not null) as has_password from duly_user where id = :id

-- name: users
select {user}, (password is not null) as has_password
  from duly_user
 where id > :after
 order by id
 limit :most

-- name: user_change
-- What is null stays as it is.
update duly_user
   set role = coalesce(:role::text, role),
       password = coalesce(:password::text, password),
       disabled_at = case when :is_disabled::boolean is null then disabled_at when :is_disabled::boolean then :now::timestamptz end
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
values (:id, :user_id, :name, :hash, :scopes::json, :now, :expires_at)

-- name: key
select {key}
  from duly_key
 where id = :id and {given user_id}

-- name: keys
select {key}
  from duly_key
 where id > :after and {given user_id}
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
 where id = :id and {given user_id}
returning id

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
-- A secret that all processes of a service share; the first one creates it.
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
