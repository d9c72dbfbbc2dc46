"""The identity of a database, and transactional puts of tests."""

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(12)
