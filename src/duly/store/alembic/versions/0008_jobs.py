"""Jobs: groups of items whose rows are counted."""

from __future__ import annotations

from alembic import op

from duly.store.alembic import upgrade_to

revision = "duly_0008"
down_revision = "duly_0007"
branch_labels = None


def upgrade() -> None:
    upgrade_to(op.get_bind(), 8)


def downgrade() -> None:
    raise NotImplementedError("migrations go forward only")
