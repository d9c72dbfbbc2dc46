"""The core: items, attempts, leases, queues."""

from __future__ import annotations

from alembic import op

from duly.store.alembic import upgrade_to

revision = "duly_0001"
down_revision = None
branch_labels = ("duly",)


def upgrade() -> None:
    upgrade_to(op.get_bind(), 1)


def downgrade() -> None:
    raise NotImplementedError("migrations go forward only")
