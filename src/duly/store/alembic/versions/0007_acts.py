"""Acts on many rows have a table of their own name."""

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(7)
