"""Why items were given back, and what is wrong with workers."""

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(14)
