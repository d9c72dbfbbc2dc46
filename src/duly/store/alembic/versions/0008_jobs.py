"""Jobs: groups of items whose rows are counted."""

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(8)
