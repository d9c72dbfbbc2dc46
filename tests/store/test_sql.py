"""The .sql files: what both dialects say alike, the same section names, and parameters in every driver's style."""

import re
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path

import pytest

from duly.store import dialects
from duly.store.dialects import named
from duly.store.sql import COMMON, psycopg_sections, sections, to_numbered, to_psycopg
from duly.store.sqlite import Sqlite

# Sections that only one database needs: what the other says in Python or in another statement.
ONLY_POSTGRES = {
    "open_ring", "lock_jobs", "lock_ring", "lock_rings", "lock_schedules", "lock_waiting", "start",
    "by_index", "now", "put", "put_one_and_tell", "tell", "tell_of_ends",
    "new_meters", "lock_meters", "keep_hits", "database_id",
}  # fmt: skip
ONLY_SQLITE = {
    "hit", "last_fence", "lease", "tried", "old",
    "begin_load", "set_aside", "reserve", "reserved", "decide_load", "next_part", "remove_part", "free_keys",
    "end_load", "loads", "put_refused",
    "begin_ids", "reserve_ids", "move_item", "move_job",  # of worlds in virtual time, which are on SQLite
}  # fmt: skip


def test_both_dialects_have_the_same_sections_but_for_those_listed_here() -> None:
    postgres, sqlite = set(sections("postgres")), set(sections("sqlite"))
    assert postgres - sqlite == ONLY_POSTGRES
    assert sqlite - postgres == ONLY_SQLITE


def test_no_section_is_written_twice_or_left_empty() -> None:
    for dialect in ("postgres", "sqlite"):
        names = [name for folder in (COMMON, named(dialect).sql) for name, _ in written(folder)]
        assert names == list(sections(dialect))
        assert all(sections(dialect).values())


def written(folder: Traversable) -> Iterator[tuple[str, str]]:
    """The sections of a folder as people wrote them, in the order in which they are read."""
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        _, *parts = re.split(r"^-- name: (\w+)\n", file.read_text(), flags=re.MULTILINE)
        yield from zip(parts[0::2], parts[1::2], strict=True)


def test_what_both_dialects_say_in_the_same_words_is_said_once() -> None:
    def plain(text: str) -> str:
        """Without what the loader would see to: comments, the types of parameters, how items are asked for."""
        text = re.sub(r"^\s*--.*\n?", "", text, flags=re.MULTILINE)
        text = re.sub(r"(:\w+)::\w+", r"\1", text)
        text = text.replace("is_waiting", "state = 'waiting'").replace("in_review", "state = 'failed'")
        return " ".join(text.split())

    postgres, sqlite = (dict(written(named(dialect).sql)) for dialect in ("postgres", "sqlite"))
    assert [name for name in postgres.keys() & sqlite.keys() if plain(postgres[name]) == plain(sqlite[name])] == []


def test_a_dialect_may_say_a_common_section_in_its_own_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Attic(Sqlite):
        name = "attic"
        sql = tmp_path

    (tmp_path / "workers.sql").write_text("-- name: last_seen\nselect :now::bigint\n")
    monkeypatch.setitem(dialects._DIALECTS, "attic", Attic())
    assert sections("attic")["last_seen"] == "select :now"
    assert sections("attic")["show"] == sections("sqlite")["show"]


def test_every_section_is_a_single_statement() -> None:
    for dialect in ("postgres", "sqlite"):
        assert [name for name, text in sections(dialect).items() if ";" in text or "--" in text] == []


def test_reads_of_both_dialects_take_the_same_parameters() -> None:
    def parameters(text: str) -> set[str]:
        return set(re.findall(r"%\((\w+)\)s", to_psycopg(text)))

    work = ("survey", "expired", "live", "pause", "resume", "page", "show", "attempts", "depth", "late", "stuck")
    time = ("schedules", "schedule", "schedules_with_ids", "slots", "occurrences", "audit", "next_schedule", "backlog",
            "overdue", "meter_use")  # fmt: skip
    others = (
        "set_meter",
        "all_meters",
        "note_each",
        "alive",
        "gone",
        "workers",
        "last_seen",
        "alert",
        "untold",
        "told",
    )
    for name in (*work, *time, *others, "over", "alerts"):
        assert parameters(sections("postgres")[name]) == parameters(sections("sqlite")[name]), name


def test_casts_are_not_taken_for_parameters() -> None:
    assert to_psycopg("select :a::text, b::int where c like '%x' and d = :d_e") == (
        "select %(a)s::text, b::int where c like '%%x' and d = %(d_e)s"
    )
    assert psycopg_sections()["show"].endswith("i.id = %(id)s")


def test_numbered_parameters_are_numbered_by_first_use() -> None:
    text, values = to_numbered("select :b, :a::text, :b", {"a": 1, "b": 2, "unused": 3})
    assert (text, values) == ("select $1, $2::text, $1", [2, 1])
