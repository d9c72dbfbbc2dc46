"""Pure values that say when and how much: no clock, no database, no thread."""

from duly.policy.retry import NEVER, Backoff, ByError, Retry

__all__ = ["NEVER", "Backoff", "ByError", "Retry"]
