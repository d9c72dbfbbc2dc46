-- Who is alive, and what is wrong.

-- name: alert
-- Whoever writes it first is the one to tell.
insert into duly_alert (name, since, message, details) values (:name, :now, :message, :details)
    on conflict (name) do update set message = excluded.message, details = excluded.details
returning (since = :now) as fresh
