"""Views of items and schedules in the words of the apps."""

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(6)
