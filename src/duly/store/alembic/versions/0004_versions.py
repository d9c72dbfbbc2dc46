"""Versions of items whose key is theirs for good; how often a person had one tried again."""

from __future__ import annotations

from alembic import op

from duly.store.alembic import upgrade_to

revision = "duly_0004"
down_revision = "duly_0003"
branch_labels = None


def upgrade() -> None:
    upgrade_to(op.get_bind(), 4)


def downgrade() -> None:
    raise NotImplementedError("migrations go forward only")
