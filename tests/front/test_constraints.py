"""No error of a driver leaves the store: every constraint of the schema, and what verbs make of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, get_args

import pytest

from duly import Duly
from duly.core.model import STATES, CatchUp, Lane, Overlap
from duly.core.shown import Action, Role
from duly.errors import ConstraintViolated, DulyError, KeyConflict, StoreError, WrongState
from duly.verbs import LOCAL

SECRET = "the secret of this row"

Constraint = tuple[str, str]  # the table, and the columns of a key or the column of a check or reference


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    one = Duly(database_url)

    @one.task
    def ring(phone: str) -> None: ...

    one.migrate()
    yield one
    one.close()


def _keys_of_one_another(app: Duly) -> None:
    ring = app.tasks["ring"]
    ring.options(key="k").put(phone=SECRET)
    app.job(ring, [ring.options(key="k").new(phone=SECRET)])


def _keys_twice_in_a_job(app: Duly) -> None:
    ring = app.tasks["ring"]
    app.job(ring, [ring.options(key="k").new(phone=f"{SECRET} {n}") for n in range(2)])


def _revived_beside_its_successor(app: Duly) -> None:
    ring = app.tasks["ring"].options(key="k", tries=1)
    first = ring.put(phone=SECRET).id
    app.cancel(first)
    ring.put(phone=SECRET)
    app.retry(first)


def _same_schedule_twice(app: Duly) -> None:
    for rule in ("daily 09:00", "daily 10:00"):
        app.schedules.create("ring", rule, {"phone": SECRET}, key="k")
    app.schedules.create_many("ring", "daily 11:00", [{"key": "k", "args": {"phone": SECRET}}] * 2)


def _same_occurrence_twice(app: Duly) -> None:
    made = app.schedules.create("ring", "daily 09:00", {"phone": SECRET}, key="k")
    for _ in range(2):
        app.schedules.run_now(made.id)


def _same_job_twice(app: Duly) -> None:
    for _ in range(2):
        app.job("ring", [{"phone": SECRET}], key="march")


def _same_user_twice(app: Duly) -> None:
    for _ in range(2):
        app.internals.verbs.users.create(LOCAL, "ana")


def _key_of_a_missing_user(app: Duly) -> None:
    app.internals.verbs.users.make_key(LOCAL, "nobody", "a key")


def _same_reply_twice(app: Duly) -> None:
    with app.internals.store.transaction() as connection:
        assert app.internals.verbs.service.begin_reply("ana", "k", SECRET, connection)
    with app.internals.store.transaction() as connection:
        assert not app.internals.verbs.service.begin_reply("ana", "k", SECRET, connection)


def _paused_and_limited_twice(app: Duly) -> None:
    for _ in range(2):
        app.pause("ring")
        app.set_limit("shop", "2/1m")


def _mapped_twice(app: Duly) -> None:
    for _ in range(2):
        app.internals.verbs.files.keep_mapping("ana", "csv", "f", {"a": "b"})


def _named_twice(app: Duly) -> None:
    assert app.internals.verbs.service.secret("s") == app.internals.verbs.service.secret("s")


# What verbs do that a constraint could reject, and what leaves the verb: None, or the error.
PROVOKED: dict[Constraint, list[tuple[Callable[[Duly], None], type[DulyError] | None]]] = {
    ("duly_item", "task, key"): [
        (_keys_of_one_another, KeyConflict), (_keys_twice_in_a_job, KeyConflict),
        (_revived_beside_its_successor, WrongState),
    ],
    ("duly_item", "schedule_id, planned_at"): [(_same_occurrence_twice, None)],
    ("duly_schedule", "task, key"): [(_same_schedule_twice, None)],
    ("duly_job", "task, owner, key"): [(_same_job_twice, None)],
    ("duly_user", "id"): [(_same_user_twice, WrongState)],
    ("duly_key", "user_id"): [(_key_of_a_missing_user, DulyError)],
    ("duly_reply", "owner, key"): [(_same_reply_twice, None)],
    ("duly_queue", "name"): [(_paused_and_limited_twice, None)],
    ("duly_meter", "name"): [(_paused_and_limited_twice, None)],
    ("duly_mapping", "owner, job_type, fingerprint"): [(_mapped_twice, None)],
    ("duly_secret", "name"): [(_named_twice, None)],
}  # fmt: skip

# Constraints on a column with a closed set of values, which the type of the verb's argument has too.
CLOSED: dict[Constraint, tuple[str, ...]] = {
    ("duly_item", "lane"): get_args(Lane),
    ("duly_item", "state"): STATES,
    ("duly_schedule", "catch_up"): get_args(CatchUp),
    ("duly_schedule", "overlap"): get_args(Overlap),
    ("duly_user", "role"): get_args(Role),
    ("duly_act", "action"): get_args(Action),
    ("duly_act", "state"): ("running", "done", "cancelled"),
}

# Constraints that no verb can reach, and why. A primary key that the database generates is not listed.
UNREACHABLE: dict[Constraint, str] = {
    ("duly_item", "job_id, row_no"): "rows of a job are numbered under the lock of the job",
    (
        "duly_attempt",
        "item_id, fence",
    ): "an attempt is written by the settle that matches its fence, which does so once",
    ("duly_attempt", "attempt_key"): "it has the item's id and the attempt's number in it",
    ("duly_attempt", "item_id"): "an attempt is written with the change of its item",
    ("duly_session", "hash"): "it is the hash of a random token",
    ("duly_session", "user_id"): "a session is made by a statement that reads the user",
    ("duly_key", "id"): "it is random",
    ("duly_slot", "ring, slot"): "triggers count slots, by an insert that updates",
    ("duly_worker", "name"): "workers report by an insert that updates",
    ("duly_alert", "name"): "alerts are raised by an insert that does nothing the second time",
    ("duly_history", "step, bucket, kind, subject, measure"): "counts are added by an insert that updates",
    ("duly_virtual_put", "id"): "it is a random token",
    ("duly_scanned", "source, version"): "a version is taken by an insert that does nothing the second time",
}


def constraints(app: Duly) -> set[Constraint]:
    """Every key, check and reference of the core's tables, but for primary keys that the database generates."""
    with app.internals.store.transaction() as connection:
        found = list(
            _of_sqlite(connection) if app.internals.store.url.startswith("sqlite") else _of_postgres(connection)
        )
    foreign = ("duly_migration", "duly_app_migration", "duly_search_event")  # tables of the migrator and of an app
    # Of one database only: the row of `duly_database` is written by the migration, and the numbers and keys of large
    # puts on SQLite are taken by inserts that do nothing the second time.
    of_one = ("duly_database", "duly_load_key", "duly_load_part")
    return {(table, of) for table, of in found if table not in (*foreign, *of_one)}


def _of_sqlite(connection: Any) -> Iterator[Constraint]:
    for table, text in connection.execute(
        "select name, sql from sqlite_master where type = 'table' and name like 'duly%'"
    ).fetchall():
        for _, index, is_unique, *_ in connection.execute(f"pragma index_list('{table}')").fetchall():
            if is_unique:
                names = [name or "owner" for *_, name in connection.execute(f"pragma index_info('{index}')")]
                yield table, ", ".join(names)
        for reference in connection.execute(f"pragma foreign_key_list('{table}')").fetchall():
            yield table, reference[3]
        for column in re.findall(r"check \((\w+) in", text):
            yield table, column


def _of_postgres(connection: Any) -> Iterator[Constraint]:
    indexes = connection.execute(
        "select indrelid::regclass::text, pg_get_indexdef(indexrelid) from pg_index where indisunique"
        " and indrelid::regclass::text like 'duly%' and not exists (select from pg_attribute where attrelid = indrelid"
        " and attnum = any(indkey) and attidentity <> '')"
    )
    for table, text in indexes.fetchall():
        columns = text.partition("btree (")[2].partition(") WHERE")[0].rstrip(")")
        yield (
            table,
            columns.replace("COALESCE(owner, ''::text", "owner").replace("owner)", "owner").replace("live_key", "key"),
        )
    checks = connection.execute(
        "select conrelid::regclass::text, attname from pg_constraint, pg_attribute where contype in ('c', 'f')"
        " and attrelid = conrelid and attnum = conkey[1] and conrelid::regclass::text like 'duly%'"
    )
    yield from checks.fetchall()


def test_every_constraint_is_provoked_or_explained(app: Duly) -> None:
    assert constraints(app) == PROVOKED.keys() | CLOSED.keys() | UNREACHABLE.keys()


@pytest.mark.parametrize(
    ("provoke", "error"),
    [case for cases in PROVOKED.values() for case in cases],
    ids=lambda value: getattr(value, "__name__", "").strip("_") or "nothing",
)
def test_what_verbs_do_against_a_constraint_is_settled_or_told_without_the_row(
    app: Duly, provoke: Callable[[Duly], None], error: type[DulyError] | None
) -> None:
    if error is None:
        with suppress(WrongState):
            provoke(app)
        return
    with pytest.raises(error) as raised:
        provoke(app)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("constraint", CLOSED, ids=".".join)
def test_a_check_allows_what_the_type_allows(app: Duly, constraint: Constraint) -> None:
    table, column = constraint
    with app.internals.store.transaction() as connection:
        if app.internals.store.url.startswith("sqlite"):
            (text,) = connection.execute("select sql from sqlite_master where name = ?", (table,)).fetchone()
            allowed = re.findall(rf"check \({column} in \((.*?)\)\)", text)[0]
        else:
            (allowed,) = connection.execute(
                "select pg_get_constraintdef(c.oid) from pg_constraint c, pg_attribute a where contype = 'c'"
                " and conrelid = %s::regclass and attrelid = conrelid and attnum = conkey[1] and attname = %s",
                (table, column),
            ).fetchone()
    assert set(re.findall(r"'(\w+)'", allowed)) == set(CLOSED[constraint])


@pytest.mark.parametrize(
    "statement",
    [
        "insert into duly_queue (name) values ('the secret of this row'), ('the secret of this row')",
        "update duly_item set lane = 'the secret of this row'",
        "update duly_item set args = null",
        "update duly_key set user_id = 'the secret of this row'",
    ],
    ids=["key", "check", "not null", "reference"],
)
def test_a_constraint_is_named_and_the_row_is_not(app: Duly, statement: str) -> None:
    app.put("ring", phone="1")
    app.internals.verbs.users.create(LOCAL, "ana")
    app.internals.verbs.users.make_key(LOCAL, "ana", "a key")
    with pytest.raises(ConstraintViolated) as raised, app.internals.store.transaction() as connection:
        connection.execute(statement)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.constraint


def test_other_errors_of_statements_are_errors_of_the_store(app: Duly) -> None:
    with pytest.raises(StoreError), app.internals.store.transaction() as connection:
        connection.execute("select 1 +")


def test_a_bad_value_is_an_error_of_the_store_and_not_shown(app: Duly) -> None:
    if app.internals.store.url.startswith("sqlite"):  # it has no types that refuse
        statement: str = "insert into duly_slot (ring, slot, members) values (?, 1, 1)"
        given: tuple[Any, ...] = (object(),)
    else:
        statement, given = "select cast(%s as integer)", (SECRET,)
    with pytest.raises(StoreError) as raised, app.internals.store.transaction() as connection:
        connection.execute(statement, given)
    assert SECRET not in str(raised.value)
