-- Users, their keys and sessions, and what their requests were answered.

-- name: session_create
-- For someone whose password is still the one that was compared; nothing for others.
insert into duly_session (hash, user_id, created_at, expires_at)
select :hash, id, :now, :expires_at
  from duly_user
 where id = :user_id and disabled_at is null and password = :was
returning user_id
