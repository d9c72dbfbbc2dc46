"""Mistakes in code: the error names the field first and the remedy last, and comes where the mistake is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from duly import Duly, InputError, Limit, Snooze, Throttled
from duly.errors import ConfigError


class Opaque:
    """A type that JSON cannot carry."""


class Caller:
    def call(self, phone: str) -> None: ...

    @classmethod
    def of_all(cls, phone: str) -> None: ...


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    made = Duly(database_url)
    yield made
    made.close()


def handler(phone: str = "") -> None: ...


def numbers() -> Iterator[int]:
    yield 1


def with_opaque(phone: str, opaque: Opaque) -> None: ...


def with_pattern(patterns: list[re.Pattern[str]]) -> None: ...


def with_own_default(phone: str, opaque: Opaque | None = None) -> None: ...


DECLARED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a deadline as text": (handler, {"deadline": "5m"}, "deadline: must be a positive number of seconds or a timedel"),
    "a deadline of no number": (handler, {"deadline": True}, "deadline: must be a positive number of seconds or a ti"),
    "a limit as text": (handler, {"limits": "2/1m"}, "limits: must be like Limit('provider', 2, per='1m'), or a li"),
    "a limit as a number": (handler, {"limits": 2}, "limits: must be like Limit('provider', 2, per='1m'), or a list"),
    "texts as limits": (handler, {"limits": ["2/1m"]}, "limits: must be like Limit('provider', 2, per='1m'), or a li"),
    "a method": (Caller.call, {}, "handler: Caller.call is a method, and 'self' cannot be put; use a function, or the"),
    "a class": (
        Opaque,
        {},
        "handler: must be a function, got <class 'tests.front.test_mistakes.Opaque'>; wrap it in on",
    ),
    "a generator": (
        numbers,
        {},
        "handler: numbers is a generator, and nobody would iterate over it; return its values",
    ),
    "a lambda": (lambda: None, {}, "that a task could have; give one: app.task(name=…)"),
    "a partial": (partial(handler, "1"), {}, "that a task could have; give one: app.task(name=…)"),
    "a named partial": (partial(handler, "1"), {"name": "call"}, "handler: the annotations of functools.partial("),
    "an opaque type": (
        with_opaque,
        {},
        "opaque: with_opaque takes a Opaque, which JSON cannot carry; use str, int, fl",
    ),
    "a list of them": (
        with_pattern,
        {},
        "patterns: with_pattern takes a list[re.Pattern[str]], which JSON cannot carr",
    ),
}


@pytest.mark.parametrize("mistake", DECLARED)
def test_a_mistake_in_a_declaration_is_reported_where_it_is_made(app: Duly, mistake: str) -> None:
    function, policies, text = DECLARED[mistake]
    with pytest.raises(InputError, match=re.escape(text)):
        app.task(**policies)(function)
    assert not app.tasks


def test_methods_of_objects_and_arguments_with_defaults_of_their_own_are_fine(app: Duly) -> None:
    assert app.task(Caller().call).put(phone="1").fresh
    assert app.task(Caller.of_all).put(phone="1").fresh
    assert app.task(with_own_default).put(phone="1").fresh
    assert app.task(name="unnamed")(lambda: None).put().fresh


MEANT = "() got an unexpected keyword argument "
OPTIONS: dict[str, tuple[Callable[[Duly], Any], str]] = {
    "of a task": (lambda app: app.task(retrys=3), f"task{MEANT}'retrys'; did you mean retry? options: backlog, b"),
    "of Celery's tasks": (lambda app: app.task(rate_limit="2/m"), "'rate_limit'; did you mean limits? options: ba"),
    "of an item": (lambda app: app.task(handler).options(keyy="a"), f"options{MEANT}'keyy'; did you mean key? opti"),
    "of Celery's items": (lambda app: app.task(handler).options(eta=3), "'eta'; did you mean at? options: at, conn"),
    "of nothing": (lambda app: app.task(handler).options(colour="red"), "'colour'; options: at, connection, delay,"),
    "of a schedule": (lambda app: app.task(handler).every("1h", zones=""), f"every{MEANT}'zones'; did you mean zo"),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_unknown_option_is_answered_with_those_that_there_are(app: Duly, option: str) -> None:
    mistake, text = OPTIONS[option]
    with pytest.raises(TypeError, match=re.escape(text)):
        mistake(app)


@pytest.mark.parametrize(("name", "option"), [("key", "key"), ("countdown", "delay")])
def test_an_option_among_the_arguments_is_answered_with_the_place_for_it(app: Duly, name: str, option: str) -> None:
    hint = f"; options are given apart from arguments: options({option}=…).put(…)"
    with pytest.raises(InputError, match=re.escape(f"{name}: is not an argument of this task; accepted: phone{hint}")):
        app.task(handler).put(**{name: 3})
    with pytest.raises(InputError, match=r"colour: is not an argument of this task; accepted: phone$"):
        app.put("handler", colour="red")


@pytest.mark.parametrize("rows", [None, 3, "phone", {"phone": "1"}])
def test_what_is_no_list_of_rows_is_refused_before_anything_is_written(app: Duly, rows: Any) -> None:
    task = app.task(handler)
    for act in (partial(app.job, task), task.put_many):
        with pytest.raises(
            InputError, match=r"^rows: must be a list, or another iterable, of mappings of arguments, got"
        ):
            act(rows)
    assert list(app.client.jobs()) == []


def test_a_limit_of_two_tasks_has_the_same_numbers_in_both(app: Duly) -> None:
    app.task(name="first", limits=Limit("provider", 2, per="1m"))(handler)
    app.task(name="second", limits=[Limit("provider", 2, per=60), Limit("other", 3)])(handler)
    text = (
        "limits: Limit('provider', 3, per=60) differs from Limit('provider', 2, per=60) of first; use one for both, or"
    )
    with pytest.raises(InputError, match=re.escape(text)):
        app.task(name="third", limits=Limit("provider", 3, per="1m"))(handler)
    with pytest.raises(
        InputError, match=re.escape("limits: Limit('other', 3, per=1) differs from Limit('other', 3) of s")
    ):
        app.task(name="fourth", limits=Limit("other", 3, per=1))(handler)


ADDRESSES = {
    "postgresql+psycopg://someone:secret@localhost/duly": "names a driver, and duly has its own; use postgresql://…",
    "sqlite+aiosqlite:///duly.db": "names a driver, and duly has its own; use sqlite://…",
    "mysql+asyncmy://someone:secret@localhost/duly": "is not known; use sqlite:///file.db or postgresql://…",
    "host=localhost password=secret": "is not known; use sqlite:///file.db or postgresql://…",
}


@pytest.mark.parametrize("url", ADDRESSES)
def test_an_address_of_a_database_is_checked_when_the_app_is_made(url: str) -> None:
    with pytest.raises(ConfigError, match=rf"^database_url: '[\w +]+' {re.escape(ADDRESSES[url])}$") as refused:
        Duly(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("delay", ["5m", None, True, -1, float("nan"), 1e12])
def test_a_delay_that_is_no_time_is_refused_with_the_field_first(delay: Any) -> None:
    for verdict in (Snooze, Throttled):
        with pytest.raises(
            ValueError, match=r"^delay: must be seconds between 0 and a hundred years or a timedelta, got"
        ):
            verdict(delay)
