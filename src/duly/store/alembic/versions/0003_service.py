"""The service: owners, people, keys, sessions, replies, review notes, bulk actions."""

from __future__ import annotations

from alembic import op

from duly.store.alembic import upgrade_to

revision = "duly_0003"
down_revision = "duly_0002"
branch_labels = None


def upgrade() -> None:
    upgrade_to(op.get_bind(), 3)


def downgrade() -> None:
    raise NotImplementedError("migrations go forward only")
