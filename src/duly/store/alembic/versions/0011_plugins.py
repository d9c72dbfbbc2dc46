"""Migrations of plug-ins."""

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(11)
