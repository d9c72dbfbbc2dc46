"""Versions of items that keep their key, and how often a person retried an item."""

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(4)
