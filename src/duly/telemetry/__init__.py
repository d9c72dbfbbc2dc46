"""What the outside sees of a process: metrics, logs and spans."""

from duly.telemetry.telemetry import Telemetry, is_tracing, set_up_logs

__all__ = ["Telemetry", "is_tracing", "set_up_logs"]
