"""A table as it is after years: history, a far future, a backlog, and workers that vanished. For both databases."""

from __future__ import annotations

from tests.support import share

QUEUES = [f"q{n}" for n in range(5)]
SHARES = [
    share(queue, lane, (0, 1, 2), limit=10, task="ring")
    for queue in (*QUEUES, "backlog", "nowhere")
    for lane in ("main", "retry")
]
DUE = 40  # items due now in each queue, over both lanes and three ranks; the backlog has many more
LEASES = 200  # that have run out, each with ten items
RECURRING = 600  # schedules that are due

SEED = {
    "finished": """
        insert into duly_item (task, queue, lane, rank, state, outcome, planned_at, due_at, execution_key, args,
                               attempt, fence, finished_at, created_at)
        select 'ring', 'q' || n % 5, 'main', n % 3, 'done', 'done', {past}, {past}, {uuid}, '{{}}', 1, 1, {past}, {past}
          from {series}""",
    "future": """
        insert into duly_item (task, queue, lane, rank, state, planned_at, due_at, execution_key, args, created_at)
        select 'ring', 'q' || n % 5, case n % 7 when 0 then 'retry' else 'main' end, n % 3, 'waiting', {future},
               {future}, {uuid}, '{{}}', {past}
          from {series}""",
    "backlog": """
        insert into duly_item (task, queue, lane, rank, state, planned_at, due_at, execution_key, args, created_at)
        select 'ring', case when n <= 5 * {due} then 'q' || n % 5 else 'backlog' end,
               case n % 7 when 0 then 'retry' else 'main' end, n % 3, 'waiting', {past}, {past}, {uuid}, '{{}}', {past}
          from {series}""",
    "running": """
        insert into duly_item (id, task, queue, lane, rank, state, planned_at, due_at, execution_key, args, attempt,
                               fence, claimed_by, started_at, created_at)
        select 100000000 + n, 'ring', 'q' || n % 5, 'main', 0, 'running', {past}, {past}, {uuid}, '{{}}', 1,
               1000000 + n / 10, 'w0', {past}, {past}
          from {series}""",
    "schedules": """
        insert into duly_schedule (task, key, queue, args, rule, zone, catch_up, overlap, next_at, created_at)
        select 'ring', 'k' || n, 'recurring', '{{}}', 'cron * * * * *', 'UTC', 'latest',
               case n % 2 when 0 then 'allow' else 'supersede' end,
               case when n < {recurring} then {minute} when n % 3 > 0 then {future} end, {past}
          from {series}""",
}
