from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from duly import Duly, InputError
from duly.core.decide import Rules, decide
from duly.core.errors import BrokenApp, ConfigError, DoesNotExist, WrongState
from duly.core.model import GiveUp
from duly.facade.loading import find_spec, load_app
from tests.support import claim, counts, heads, new, settle, share

here = Duly("sqlite:///unused.db")


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    one = Duly(database_url)

    @one.task(name="ring")
    def ring() -> None: ...

    yield one
    one.close()


def give_up_on_all(app: Duly) -> None:
    now = app.clock.now()
    items = claim(app.internals.store, now=now)
    app.internals.store.settle(
        [decide(item, GiveUp("no"), now, Rules()) for item in items], [item.fence for item in items]
    )


def test_an_item_in_review_can_be_tried_again_with_all_its_tries(app: Duly) -> None:
    item_id = app.put("ring").id
    give_up_on_all(app)
    assert app.read.item(item_id).state == "failed"
    assert app.retry(item_id, delay=60) == [item_id]
    row = app.read.item(item_id)
    assert (row.state, row.attempt, row.outcome) == ("waiting", 0, "revived")
    assert row.due_at > app.clock.now() + timedelta(seconds=50)


def test_a_waiting_item_can_be_hurried(app: Duly) -> None:
    item_id = app.task_named("ring").after(3600).put().id
    app.retry(item_id)
    assert app.read.item(item_id).due_at <= app.clock.now()


def test_an_item_that_is_over_cannot_be_cancelled(app: Duly) -> None:
    item_id = app.put("ring").id
    app.cancel(item_id)
    with pytest.raises(WrongState, match="is cancelled and cannot be cancelled"):
        app.cancel(item_id)


def test_all_or_none_of_several_are_found(app: Duly) -> None:
    item_id = app.put("ring").id
    with pytest.raises(DoesNotExist, match="999"):
        app.cancel(item_id, 999)
    assert counts(app.internals.store) == {"waiting": 1}


def test_reviving_an_item_whose_key_was_given_away_says_so(app: Duly) -> None:
    old = app.task_named("ring").options(key="k").put().id
    give_up_on_all(app)
    app.task_named("ring").options(key="k").put()
    with pytest.raises(WrongState, match="key"):
        app.retry(old)


def test_items_of_unknown_tasks_can_be_looked_after_too(app: Duly, database_url: str) -> None:
    item_id = app.put("ring").id
    stranger = Duly(database_url)
    stranger.cancel(item_id)
    assert app.read.item(item_id).state == "cancelled"
    stranger.close()


def test_a_queue_name_is_checked(app: Duly) -> None:
    with pytest.raises(InputError, match="queue"):
        app.pause("\x00")


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="concurency"):
        Duly(concurency=5)


def test_apps_are_found_by_module_and_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from duly import Duly\napp = Duly('sqlite:///x.db')\nother = 5\n"
    (tmp_path / "some_app.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert isinstance(load_app("some_app"), Duly)
    assert load_app("some_app:app").internals.spec == "some_app:app"
    assert isinstance(load_app("some_app.py:app"), Duly)
    for spec, complaint in [
        ("some_app:other", "not a Duly app"),
        ("some_app:missing", "not a Duly app"),
        ("no_such_module_here:app", "cannot import"),
        ("no_such_file.py:app", "no file"),
    ]:
        with pytest.raises(ConfigError, match=complaint):
            load_app(spec)


def test_a_bug_in_the_users_module_is_told_by_its_own_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_app.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BrokenApp, match=r"(?s)broken_app.py.*ZeroDivisionError") as told:
        load_app("broken_app")
    assert "loading.py" not in str(told.value)


def test_another_process_is_told_where_the_app_is() -> None:
    assert find_spec(here) == f"{__name__}:here"
    assert find_spec(Duly("sqlite:///x.db")) is None


def test_pausing_says_when_nothing_has_this_name_yet_and_pauses_all_the_same(app: Duly, database_url: str) -> None:
    note = "there is no queue {} yet: items put into it will wait"
    assert app.pause("ring") is None, "a task of ours"
    assert app.pause("nosuch") == note.format("nosuch")
    assert app.pause("nosuch") == note.format("nosuch"), "that it is paused is no name"
    app.internals.store.put(
        [new("ring", queue=name, due_at=app.clock.now()) for name in ("waits", "mail/ana", "runs", "failed")]
    )
    settle(app.internals.store, claim(app.internals.store, share("failed"), now=app.clock.now()), GiveUp("no"))
    claim(app.internals.store, share("runs"), now=app.clock.now())
    app.schedules.create("ring", "every 1h", key="k")
    stranger = Duly(database_url)
    assert [stranger.pause(name) for name in ("waits", "mail", "mail/ana", "runs", "failed", "ring")] == [None] * 6
    assert stranger.pause("mai") == note.format("mai")
    with stranger.internals.store.transaction() as connection:
        assert stranger.pause("ail", connection) == note.format("ail")
    stranger.close()
    assert {depth.queue for depth in app.read.depths() if depth.paused} >= {"nosuch", "mai", "ail", "ring"}
    assert heads(app.internals.store) == []
