"""The settings of the core, each explained where it is declared. `duly.config` finds the values that are in force."""

from __future__ import annotations

import os
from dataclasses import dataclass

from duly.core.errors import ConfigError
from duly.core.policy.adapt import SliceBounds
from duly.core.section import Section, setting


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """The settings of the core."""

    database_url: str = setting(
        "sqlite:///duly.db",
        "The database that due work is kept in: sqlite:///file.db or postgresql://user@host/name.",
        secret=True,
    )
    apps: str = setting(
        "",
        "The apps that `duly up` and `duly serve` run when they are given no app of yours, separated by commas; "
        "empty: all that are installed, except those that need a setting which is not given.",
    )
    concurrency: int = setting(
        10,
        "How many calls of each kind (async, thread) a worker runs at the same time; "
        "one of several queues leaves a quarter free.",
        "SCHEDULER_BATCH_SIZE",
        least=1,
    )
    cpu_slots: int = setting(
        os.cpu_count() or 1, "How many processes a worker has for cpu=True tasks; default: one per core.", least=1
    )
    claim_most: int = setting(1_000, "The largest number of items taken in one claim.", least=1)
    poll_seconds: float = setting(
        60.0,
        "The longest time that an idle worker sleeps. "
        "It wakes at due times and for new work anyway; this is the safety net.",
        "SCHEDULER_POLL_INTERVAL_SECONDS",
        least=0.01,
    )
    sweep_seconds: float = setting(
        5.0,
        "How often each worker looks for due work that nobody announced and for dead leases; "
        "for those at least every 0.4 leases.",
        least=0.05,
    )
    lease_seconds: float = setting(
        20.0,
        "How long a worker may keep its items without a heartbeat; it must be the same for all workers of a database.",
        least=0.5,
    )
    beat_seconds: float = setting(
        5.0, "The time between two heartbeats, which prolong the leases; at most half of lease_seconds.", least=0.05
    )
    deadline_seconds: float = setting(
        1_800.0,
        "The deadline of a try, for tasks that set none: a handler that still runs then is stopped and has failed.",
        least=0.01,
    )
    drain_seconds: float = setting(
        30.0, "How long a stopping worker waits for running handlers before it gives their attempts back.", least=0
    )
    crash_limit: int = setting(3, "How many crashes send an item to review, for tasks that do not say.", least=1)
    retry_tries: int = setting(
        3, "How many tries an item has in all, for tasks that set no retry policy.", "RETRY_MAX_ATTEMPTS", least=1
    )
    retry_base_seconds: float = setting(
        60.0,
        "The delay after the first failure, which doubles with each, for tasks that set no retry policy.",
        "RETRY_BASE_DELAY_SECONDS",
        least=0,
    )
    late_seconds: float = setting(3_600.0, "A start that is later than this is logged as a recovery.", least=0)
    alert_late_seconds: float = setting(
        300.0, "How late a due item must be to count for the alert of late items.", least=1
    )
    alert_late_items: int = setting(10, "An alert is raised when more items than this are late.", least=0)
    alert_oldest_seconds: float = setting(
        3_600.0, "An alert is raised when the oldest due item is older than this; 0: never.", least=0
    )
    alert_silence_seconds: float = setting(
        300.0, "An alert is raised when no worker has given a sign of life for longer than this.", least=60
    )
    alert_webhook_url: str = setting(
        "", "Where alerts are posted as JSON; nowhere when empty.", "ALERT_WEBHOOK_URL", is_url=True
    )
    keep_seconds: float = setting(
        7 * 86_400.0,
        "How long done and cancelled items are kept; 0 keeps them for ever. Items in review are always kept.",
        least=0,
    )
    audit_keep_seconds: float = setting(
        365 * 86_400.0, "How long lines of the audit log are kept; 0 keeps them for ever.", least=0
    )
    history_seconds: float = setting(
        7_200.0, "How long what happened is kept in steps of 10 seconds, for charts; 0: it is not.", least=0
    )
    history_long_seconds: float = setting(
        14 * 86_400.0, "How long it is kept in steps of 5 minutes; 0: it is not.", least=0
    )
    max_args_bytes: int = setting(
        1_048_576, "The largest arguments of one item, as JSON text; also at most 100 levels deep.", least=2
    )
    max_result_bytes: int = setting(
        1_048_576, "The largest result of one item, as JSON text; also at most 100 levels deep.", least=2
    )
    pool_size: int = setting(10, "How many PostgreSQL connections one process has for its puts and reads.", least=1)
    store_timeout_seconds: float = setting(
        30.0, "How long a call waits for a database that is busy or away, and a statement for its answer.", least=0.1
    )
    listen: bool = setting(
        True,
        "Use LISTEN on PostgreSQL to wake at once; behind a transaction pooler turn it off, and sweeps find new work.",
    )
    masked: str = setting(
        "password,secret,token,authorization,api_key,apikey",
        "Parts of names, separated by commas: arguments and results with such a name are masked in lists.",
    )
    trace_url: str = setting(
        "",
        "Where a trace is shown, with {trace_id} in its place, such as https://jaeger.example/trace/{trace_id}; "
        "empty: traces are not linked.",
    )
    http_host: str = setting(
        "127.0.0.1", "The address on which the service listens, or a worker for /metrics, /healthz and /readyz."
    )
    http_port: int = setting(8086, "The port at that address; 0 turns it off.", least=0)
    log_level: str = setting("INFO", "The least severe level that is logged: DEBUG, INFO, WARNING or ERROR.")
    log_format: str = setting(
        "auto", "The form of log lines: json, text, or auto, which is text on a terminal and JSON elsewhere."
    )

    def __post_init__(self) -> None:
        if self.beat_seconds * 2 > self.lease_seconds:
            raise ConfigError("beat_seconds: must be at most half of lease_seconds, or leases end between heartbeats")
        if self.log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise ConfigError(f"log_level: {self.log_level!r} is none of DEBUG, INFO, WARNING, ERROR")
        if self.log_format not in ("json", "text", "auto"):
            raise ConfigError(f"log_format: {self.log_format!r} is none of json, text, auto")
        if self.trace_url and not (
            self.trace_url.startswith(("http://", "https://")) and "{trace_id}" in self.trace_url
        ):
            raise ConfigError("trace_url: must be an http address with {trace_id} in it")
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class JobSettings(Section):
    """The settings of jobs whose rows come from files."""

    db_ingest_enabled: bool = setting(
        True, "Whether jobs may be made from files: what is sent is kept first, and then worked off.",
        "DB_INGEST_ENABLED",
    )  # fmt: skip
    pending_enabled: bool = setting(
        False, "Whether there is a list of the pending rows of all jobs, /api/pending.", "PENDING_DASHBOARD_ENABLED"
    )
    files_url: str = setting(
        "duly-files", "Where files that were sent are kept: a folder, or s3://bucket/prefix (with AWS_… for the rest)."
    )
    s3_endpoint: str = setting("", "Where buckets are, if they are not Amazon's, such as https://minio.example:9000.")
    upload_max_bytes: int = setting(4 * 1024**3, "The largest file that is taken.", least=1)
    inbox: str = setting("", "The folder that `file:` addresses name files in; empty: there is none.")
    sources_allowed: str = setting(
        "",
        "What addresses of files may begin with, by commas, such as s3://drop/incoming/; empty: none but file:.",
    )
    scan_every: float = setting(
        0.0, "Seconds between two looks for new files in inbox and sources_allowed; 0: only when someone asks.", least=0
    )
    scan_settle_seconds: float = setting(
        5.0, "How long a file of a folder or an FTP server must stay as it is before a scan takes it.", least=0
    )
    scan_type: str = setting(
        "", "The type of the jobs of scanned files; empty: image for pictures and zip files, else csv."
    )
    scan_owner: str = setting(
        "", "The user whose the jobs of scanned files are; empty: nobody's, so that only admins see them."
    )
    ftp_password: str = setting("", "The password for ftp:// and ftps:// addresses, which name the user.", secret=True)
    jobs_keep_seconds: float = setting(
        30 * 86_400.0,
        "How long jobs whose rows have all ended are kept, with their rows and files; 0 keeps them for ever.",
        least=0,
    )
    job_most_rows: int = setting(10_000_000, "The most rows that one file may have.", least=1)
    owner_most_jobs: int = setting(100, "The most jobs of one owner that are not over.", least=1)
    owner_most_rows: int = setting(
        20_000_000,
        "The most rows of one owner that have not ended, from which on no new job of theirs is taken.",
        least=1,
    )
    ingest_min_rows: int = setting(16, "The fewest rows that are written at a time.", "INGEST_MIN_ROWS", least=1)
    ingest_max_rows: int = setting(8_192, "The most rows that are written at a time.", "INGEST_MAX_ROWS", least=1)
    ingest_max_batch_bytes: int = setting(
        4 * 1024 * 1024, "The most bytes of rows that are written at a time.", "INGEST_MAX_BATCH_BYTES", least=1
    )
    db_p50_ms: float = setting(
        100.0, "A write of rows that takes no longer lets the next one be larger.", "DB_P50_MS", least=0
    )
    db_p95_ms: float = setting(500.0, "A write of rows that takes longer halves the next one.", "DB_P95_MS", least=0)
    worker_target_slice_ms: float = setting(
        5_000.0, "For how long a worker claims rows of a task with a pace.", "WORKER_TARGET_SLICE_MS", least=1
    )
    claim_min: int = setting(1, "The fewest rows that it claims for that.", "CLAIM_MIN", least=1)
    claim_max: int = setting(500, "The most rows that it claims for that.", "CLAIM_MAX", least=1)
    safety_factor: float = setting(
        0.7, "The part of that time that the claimed rows should take.", "SAFETY_FACTOR", least=0.01
    )
    max_attempts_error: int = setting(
        5, "Tries after which a row that failed is not reprocessed with its whole job.", "MAX_ATTEMPTS_ERROR", least=1
    )
    max_attempts_not_found: int = setting(
        3, "The same for a row for which nothing was found.", "MAX_ATTEMPTS_NOT_FOUND", least=1
    )

    @property
    def slices(self) -> SliceBounds:
        return SliceBounds(
            target=self.worker_target_slice_ms / 1_000,
            least=self.claim_min,
            most=max(self.claim_max, self.claim_min),
            safety=self.safety_factor,
        )
