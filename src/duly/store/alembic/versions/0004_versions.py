"""Versions of items whose key is theirs for good; how often a person had one tried again."""

from __future__ import annotations

from duly.store.alembic import step

revision, down_revision, branch_labels, upgrade, downgrade = step(4)
