"""History: what happened lately, for charts."""

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(9)
