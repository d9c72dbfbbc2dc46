"""Views that tell of items and schedules in the words of the apps."""

from __future__ import annotations

from alembic import op

from duly.store.alembic import upgrade_to

revision = "duly_0006"
down_revision = "duly_0005"
branch_labels = None


def upgrade() -> None:
    upgrade_to(op.get_bind(), 6)


def downgrade() -> None:
    raise NotImplementedError("migrations go forward only")
