"""The settings that `Duly(…)` takes as keywords, for type checkers. A test compares them with those that are declared.

Settings of plug-ins are given apart, in `plugin_settings`.
"""

from __future__ import annotations

from typing import TypedDict


class GivenSettings(TypedDict, total=False):
    """The core's settings and those of jobs. None counts as not given."""

    apps: str | None
    concurrency: int | None
    cpu_slots: int | None
    claim_most: int | None
    poll_seconds: float | None
    sweep_seconds: float | None
    lease_seconds: float | None
    beat_seconds: float | None
    deadline_seconds: float | None
    drain_seconds: float | None
    runaways_most: int | None
    crash_limit: int | None
    retry_tries: int | None
    retry_base_seconds: float | None
    late_seconds: float | None
    alert_late_seconds: float | None
    alert_late_items: int | None
    alert_oldest_seconds: float | None
    alert_silence_seconds: float | None
    alert_again_seconds: float | None
    alert_webhook_url: str | None
    keep_seconds: float | None
    audit_keep_seconds: float | None
    history_seconds: float | None
    history_long_seconds: float | None
    max_args_bytes: int | None
    max_result_bytes: int | None
    pool_size: int | None
    store_timeout_seconds: float | None
    listen: bool | None
    masked: str | None
    trace_url: str | None
    http_host: str | None
    http_port: int | None
    log_level: str | None
    log_format: str | None
    db_ingest_enabled: bool | None
    pending_enabled: bool | None
    files_url: str | None
    s3_endpoint: str | None
    upload_max_bytes: int | None
    inbox: str | None
    sources_allowed: str | None
    scan_every: float | None
    scan_settle_seconds: float | None
    scan_type: str | None
    scan_owner: str | None
    ftp_password: str | None
    jobs_keep_seconds: float | None
    job_most_rows: int | None
    owner_most_jobs: int | None
    owner_most_rows: int | None
    ingest_min_rows: int | None
    ingest_max_rows: int | None
    ingest_max_batch_bytes: int | None
    db_p50_ms: float | None
    db_p95_ms: float | None
    worker_target_slice_ms: float | None
    claim_min: int | None
    claim_max: int | None
    safety_factor: float | None
    max_attempts_error: int | None
    max_attempts_not_found: int | None
