-- Files that scans found.

-- name: scanned
-- Those of these versions, each with its source, that were taken or refused before.
select s.source, s.version, s.job_id, s.reason
  from json_each(:pairs) as e
  join duly_scanned s on s.source = json_extract(e.value, '$[0]') and s.version = json_extract(e.value, '$[1]')
