"""Acts on many rows have a table of their own name."""

from __future__ import annotations

from alembic import op

from duly.store.alembic import upgrade_to

revision = "duly_0007"
down_revision = "duly_0006"
branch_labels = None


def upgrade() -> None:
    upgrade_to(op.get_bind(), 7)


def downgrade() -> None:
    raise NotImplementedError("migrations go forward only")
