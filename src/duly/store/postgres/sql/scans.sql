-- Files that scans found.

-- name: scanned
-- Those of these versions, each with its source, that were taken or refused before.
select s.source, s.version, s.job_id, s.reason
  from json_array_elements(:pairs::json) as e(value)
  join duly_scanned s on s.source = e.value ->> 0 and s.version = e.value ->> 1
