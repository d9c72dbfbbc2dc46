"""Views of the apps tell what the apps tell."""

from __future__ import annotations

from alembic import op

from duly.store.alembic import upgrade_to

revision = "duly_0010"
down_revision = "duly_0009"
branch_labels = None


def upgrade() -> None:
    upgrade_to(op.get_bind(), 10)


def downgrade() -> None:
    raise NotImplementedError("migrations go forward only")
