"""Thirty days in which everything goes as planned; tests/virtual has a week."""

from __future__ import annotations

from tests.virtual.test_quiet import (  # noqa: F401
    test_failures_now_and_then_raise_no_alert_either,
    test_normal_days_raise_no_alert_no_warning_and_no_recovery,
    test_six_hours_of_downtime_are_one_alert_that_is_told_until_it_is_over,
)
