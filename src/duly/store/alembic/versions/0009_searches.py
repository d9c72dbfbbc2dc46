"""Questions to providers belong to a try of an item, and go with their item."""

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
