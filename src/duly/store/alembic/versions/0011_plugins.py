"""Migrations of plug-ins."""

from __future__ import annotations

from alembic import op

from duly.store.alembic import upgrade_to

revision = "duly_0011"
down_revision = "duly_0010"
branch_labels = None


def upgrade() -> None:
    upgrade_to(op.get_bind(), 11)


def downgrade() -> None:
    raise NotImplementedError("migrations go forward only")
