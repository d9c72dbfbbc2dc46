"""Lines of waiting items, and what falls due next."""

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(5)
