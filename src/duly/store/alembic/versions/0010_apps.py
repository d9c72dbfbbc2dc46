"""Views of the apps show the same as the apps."""

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(10)
