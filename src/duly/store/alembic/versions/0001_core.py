"""The core: items, attempts, leases, queues."""

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(1)
