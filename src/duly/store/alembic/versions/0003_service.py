"""The service: owners, people, keys, sessions, replies, review notes, bulk actions."""

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(3)
