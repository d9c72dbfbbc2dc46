"""What is due soonest, whatever its queue."""

from __future__ import annotations

from alembic import op

from duly.store.alembic import upgrade_to

revision = "duly_0005"
down_revision = "duly_0004"
branch_labels = None


def upgrade() -> None:
    upgrade_to(op.get_bind(), 5)


def downgrade() -> None:
    raise NotImplementedError("migrations go forward only")
