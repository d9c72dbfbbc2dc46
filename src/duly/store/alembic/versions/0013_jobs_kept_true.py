"""Lists over all jobs, puts of many rows on SQLite, and workers that are too old."""

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(13)
