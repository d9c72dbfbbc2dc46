"""The .sql files: the same section names in both dialects, and parameters in every driver's style."""

import re
from importlib.resources import files

from duly.store.sql import psycopg_sections, sections, to_numbered, to_psycopg

# Sections that only one database needs: what the other says in Python or in another statement.
ONLY_POSTGRES = {
    "open_ring", "lock_jobs", "lock_ring", "lock_rings", "lock_schedules", "lock_waiting", "start",
    "by_index", "now", "put", "put_one_and_tell", "tell", "settle_members", "note", "new_meters", "lock_meters",
}  # fmt: skip
ONLY_SQLITE = {"write_note", "hit", "last_fence", "lease", "tried", "old", "settle_member"}


def test_both_dialects_have_the_same_sections_but_for_those_listed_here() -> None:
    postgres, sqlite = set(sections("postgres")), set(sections("sqlite"))
    assert postgres - sqlite == ONLY_POSTGRES
    assert sqlite - postgres == ONLY_SQLITE


def test_no_section_is_written_twice_or_left_empty() -> None:
    for dialect in ("postgres", "sqlite"):
        folder = files("duly.store") / dialect / "sql"
        text = "\n".join(file.read_text() for file in sorted(folder.iterdir(), key=lambda file: file.name))
        names = re.findall(r"^-- name: (\w+)$", text, re.MULTILINE)
        assert names == list(sections(dialect))
        assert all(sections(dialect).values())


def test_every_section_is_a_single_statement() -> None:
    for dialect in ("postgres", "sqlite"):
        assert [name for name, text in sections(dialect).items() if ";" in text or "--" in text] == []


def test_reads_of_both_dialects_take_the_same_parameters() -> None:
    def parameters(text: str) -> set[str]:
        return set(re.findall(r"%\((\w+)\)s", to_psycopg(text)))

    work = ("survey", "expired", "live", "pause", "resume", "page", "show", "attempts", "depth", "late", "stuck")
    time = ("schedules", "schedule", "schedules_with_ids", "slots", "occurrences", "audit", "next_schedule", "backlog",
            "overdue")  # fmt: skip
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
