"""Civil rules at every transition of ten years; tests/core looks at four."""

from __future__ import annotations

from tests.core.test_zones import (  # noqa: F401
    database,
    test_a_cron_over_all_hours_follows_the_wall_as_it_passes,
    test_a_daily_rule_is_right_at_every_transition_of_every_zone,
    test_a_yearly_rule_is_right_at_every_transition_of_every_zone,
    test_every_civil_day_has_one_occurrence_at_every_transition_of_every_zone,
    test_every_year_has_one_birthday_in_every_zone,
)
