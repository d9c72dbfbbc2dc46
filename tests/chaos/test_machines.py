"""The state machines of stores and schedules, for ten times as many lives as in tests/core."""

from __future__ import annotations

from tests.core.test_machine import quick_store, test_a_store_lives_as_the_model_does  # noqa: F401
from tests.core.test_schedule_machine import test_schedules_live_as_the_model_does  # noqa: F401
