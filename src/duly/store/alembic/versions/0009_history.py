"""History: what happened lately, for charts."""

from __future__ import annotations

from alembic import op

from duly.store.alembic import upgrade_to

revision = "duly_0009"
down_revision = "duly_0008"
branch_labels = None


def upgrade() -> None:
    upgrade_to(op.get_bind(), 9)


def downgrade() -> None:
    raise NotImplementedError("migrations go forward only")
