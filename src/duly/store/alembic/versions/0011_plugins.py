"""Migrations of plug-ins."""

from __future__ import annotations

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(11)
