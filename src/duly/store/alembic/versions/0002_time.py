"""Time: schedules, slots, meters, audit, workers, alerts."""

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(2)
