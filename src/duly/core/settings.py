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
        "sqlite:///duly.db", "The database: sqlite:///file.db or postgresql://user@host/name.", secret=True
    )
    apps: str = setting(
        "",
        "The apps that `duly up` and `duly serve` run when no MODULE:APP is given, separated by commas. "
        "Empty: all installed apps, except those that need a setting which has no value.",
    )
    concurrency: int = setting(
        10,
        "How many handlers of each kind (async, thread) a worker runs at the same time. "
        "A queue that is not the only one uses at most three quarters of them.",
        least=1,
    )
    cpu_slots: int = setting(
        os.cpu_count() or 1, "How many processes a worker has for cpu=True tasks. Default: one per core.", least=1
    )
    claim_most: int = setting(1_000, "The largest number of items in one claim.", least=1)
    poll_seconds: float = setting(
        60.0,
        "The longest time that an idle worker sleeps. A worker wakes at due times and for new work in any case; "
        "this is the safety net.",
        least=0.01,
    )
    sweep_seconds: float = setting(
        5.0,
        "How often each worker looks for due work that was not announced, and for dead leases; "
        "for dead leases at least every 0.4 leases.",
        least=0.05,
    )
    lease_seconds: float = setting(
        20.0,
        "How long a worker keeps its items without a heartbeat. It must be the same for all workers of a database.",
        least=0.5,
    )
    beat_seconds: float = setting(
        5.0, "The time between two heartbeats, which extend the leases. At most half of lease_seconds.", least=0.05
    )
    deadline_seconds: float = setting(
        1_800.0,
        "The deadline of an attempt, for tasks that set none. A handler that still runs then is stopped, and the "
        "attempt fails.",
        least=0.01,
    )
    drain_seconds: float = setting(
        30.0, "How long a stopping worker waits for running handlers before it gives their attempts back.", least=0
    )
    runaways_most: int = setting(
        10,
        "How many handlers of a worker may run on after they were stopped: threads, and coroutines that ignore their "
        "cancellation. With that many, `duly worker` and `duly up` replace themselves. 0: any number.",
        least=0,
    )
    crash_limit: int = setting(
        3, "After how many crashes an item goes to review, for tasks that set no limit.", least=1
    )
    retry_tries: int = setting(3, "How many attempts an item has in all, for tasks that set no retry policy.", least=1)
    retry_base_seconds: float = setting(
        60.0,
        "The delay after the first failure, for tasks that set no retry policy. It doubles with each failure.",
        least=0,
    )
    late_seconds: float = setting(3_600.0, "A start that is later than this is logged as a recovery.", least=0)
    alert_late_seconds: float = setting(
        300.0, "How late a due item must be to count for the alert of late items.", least=1
    )
    alert_late_items: int = setting(10, "An alert is raised when more items than this are late.", least=0)
    alert_oldest_seconds: float = setting(
        3_600.0, "An alert is raised when the oldest due item is older than this. 0: never.", least=0
    )
    alert_silence_seconds: float = setting(
        300.0, "An alert is raised when no worker has reported for longer than this.", least=60
    )
    alert_again_seconds: float = setting(
        3_600.0, "How long after the last report an alert that is still raised is reported again. 0: never.", least=0
    )
    alert_webhook_url: str = setting("", "The URL that alerts are posted to, as JSON. Empty: none.", is_url=True)
    keep_seconds: float = setting(
        7 * 86_400.0,
        "How long done and cancelled items are kept. 0: for ever. Items in review are always kept.",
        least=0,
    )
    audit_keep_seconds: float = setting(
        365 * 86_400.0, "How long lines of the audit log are kept. 0: for ever.", least=0
    )
    history_seconds: float = setting(
        7_200.0, "How long the history of charts is kept in steps of 10 seconds. 0: not at all.", least=0
    )
    history_long_seconds: float = setting(
        14 * 86_400.0, "How long the history of charts is kept in steps of 5 minutes. 0: not at all.", least=0
    )
    max_args_bytes: int = setting(
        1_048_576, "The largest arguments of one item, as JSON text. They may be at most 100 levels deep.", least=2
    )
    max_result_bytes: int = setting(
        1_048_576, "The largest result of one item, as JSON text. It may be at most 100 levels deep.", least=2
    )
    pool_size: int = setting(10, "How many PostgreSQL connections one process has for its puts and reads.", least=1)
    store_timeout_seconds: float = setting(
        30.0, "How long a call waits for a busy or unreachable database, and a statement for its answer.", least=0.1
    )
    listen: bool = setting(
        True,
        "Use LISTEN on PostgreSQL to wake at once. Turn it off behind a transaction pooler; sweeps then find new work.",
    )
    masked: str = setting(
        "password,secret,token,authorization,api_key,apikey",
        "Parts of names, separated by commas. Arguments and results with such a name are masked in lists.",
    )
    trace_url: str = setting(
        "",
        "The URL that shows a trace, with {trace_id} as its placeholder: https://jaeger.example/trace/{trace_id}. "
        "Empty: traces are not linked.",
    )
    http_host: str = setting(
        "127.0.0.1", "The address that the service listens on; for a worker, that of /metrics, /healthz and /readyz."
    )
    http_port: int = setting(8086, "The port at that address. 0: none.", least=0)
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
        True, "Whether jobs can be made from files. A file is kept first, and then processed."
    )
    pending_enabled: bool = setting(False, "Whether /api/pending lists the pending rows of all jobs.")
    files_url: str = setting(
        "duly-files",
        "Where uploaded files are kept: a folder, or the URL of a bucket: s3://bucket/prefix, gs://… or az://… "
        "(credentials come from the variables AWS_…, GOOGLE_… or AZURE_…).",
    )
    s3_endpoint: str = setting("", "The URL of the S3 service, if it is not Amazon's: https://minio.example:9000.")
    upload_max_bytes: int = setting(4 * 1024**3, "The largest file that is accepted.", least=1)
    inbox: str = setting("", "The folder of the files that `file:` addresses name. Empty: there is none.")
    sources_allowed: str = setting(
        "",
        "Which addresses of files are accepted: their beginnings, separated by commas, such as s3://drop/incoming/. "
        "Empty: file: addresses only.",
    )
    scan_every: float = setting(
        0.0, "Seconds between two scans of inbox and sources_allowed for new files. 0: only on request.", least=0
    )
    scan_settle_seconds: float = setting(
        5.0, "How long a file of a folder or an FTP server must stay unchanged before a scan takes it.", least=0
    )
    scan_type: str = setting(
        "", "The type of jobs created from scanned files. Empty: image for images and zip files, else csv."
    )
    scan_owner: str = setting(
        "", "Owner of jobs created from scanned files. Empty: no owner, so that only admins see them."
    )
    ftp_password: str = setting("", "The password for ftp:// and ftps:// addresses, which name the user.", secret=True)
    jobs_keep_seconds: float = setting(
        30 * 86_400.0, "How long finished jobs are kept, with their rows and files. 0: for ever.", least=0
    )
    job_most_rows: int = setting(10_000_000, "The largest number of rows of one file.", least=1)
    owner_most_jobs: int = setting(100, "The largest number of unfinished jobs of one owner.", least=1)
    owner_most_rows: int = setting(
        20_000_000, "The number of unfinished rows of one owner at which new jobs are rejected.", least=1
    )
    ingest_min_rows: int = setting(16, "The smallest number of rows in one write.", least=1)
    ingest_max_rows: int = setting(8_192, "The largest number of rows in one write.", least=1)
    ingest_max_batch_bytes: int = setting(4 * 1024 * 1024, "The largest number of bytes in one write.", least=1)
    db_p50_ms: float = setting(100.0, "After a write of rows that takes no longer, the next one is larger.", least=0)
    db_p95_ms: float = setting(
        500.0, "After a write of rows that takes longer, the next one is half as large.", least=0
    )
    worker_target_slice_ms: float = setting(
        5_000.0, "The time for which a worker claims rows of a task with a pace.", least=1
    )
    claim_min: int = setting(1, "The smallest number of rows in such a claim.", least=1)
    claim_max: int = setting(500, "The largest number of rows in such a claim.", least=1)
    safety_factor: float = setting(0.7, "The share of that time which the claimed rows should take.", least=0.01)
    max_attempts_error: int = setting(
        5, "After how many attempts a failed row is not reprocessed with its whole job.", least=1
    )
    max_attempts_not_found: int = setting(
        3, "After how many attempts a row that was not found is not reprocessed with its whole job.", least=1
    )

    @property
    def slices(self) -> SliceBounds:
        return SliceBounds(
            target=self.worker_target_slice_ms / 1_000,
            least=self.claim_min,
            most=max(self.claim_max, self.claim_min),
            safety=self.safety_factor,
        )
