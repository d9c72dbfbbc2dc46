"""Time: schedules, slots, meters, audit, workers, alerts."""

from __future__ import annotations

from alembic import op

from duly.store.alembic import upgrade_to

revision = "duly_0002"
down_revision = "duly_0001"
branch_labels = None


def upgrade() -> None:
    upgrade_to(op.get_bind(), 2)


def downgrade() -> None:
    raise NotImplementedError("migrations go forward only")
