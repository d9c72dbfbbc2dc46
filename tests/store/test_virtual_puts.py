"""What a world of tests in virtual time reads of puts on connections of callers."""

from __future__ import annotations

import pytest

from duly.core.errors import KeyConflict
from duly.store import Store
from duly.store.virtual import committed, holder
from tests.support import new, opened


def test_a_database_without_the_tables_has_no_committed_put_yet(blank_url: str) -> None:
    with opened(blank_url) as store:
        assert committed(store, ["a"]) == set()


def test_a_key_that_a_live_item_with_other_content_has_is_a_conflict(store: Store) -> None:
    (placed,) = store.put([new(key="k", args=b'{"n":1}')])
    same = holder(store, new(key="k", args=b'{"n":1}'))
    assert same is not None
    assert (same.id, same.fresh) == (placed.id, False)
    with pytest.raises(KeyConflict):
        holder(store, new(key="k", args=b'{"n":2}'))
