"""From rows to files and back: exports, rejects that are mended and join their job again, comparisons."""

from __future__ import annotations

import csv
import io
from typing import Any

import openpyxl
import pytest

from duly import Duly
from duly.core.errors import DoesNotExist, WrongState
from duly.errors import InputError
from duly.intake.exports import exported_differences
from duly.intake.mending import mend, mend_row, refused
from duly.testing import World
from duly.verbs import LOCAL
from tests.intake.conftest import look, send, someone
from tests.support import query

TABLE = "title,brand,price\n=cup,Acme,1\nbroken,Acme,2\npot,,many\nnowhere,,3\n"


def table(portions: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(b"".join(portions).decode("utf-8-sig"))))


def test_an_export_says_what_the_grid_says(app: Duly, world: World) -> None:
    job = send(app, TABLE)
    world.run()
    rows = table(app.internals.exports.whole(LOCAL, job.id, "csv"))
    grid = app.internals.verbs.job_rows.by_number(LOCAL, job.id)
    assert list(rows[0]) == ["row", "status", "title", "brand", "price", "cost", "found", "attempts", "error"]
    assert [(int(row["row"]), row["status"], row["error"]) for row in rows] == [
        (item.row_no, item.status, item.last_error or "") for item in grid
    ]
    assert [row["found"] for row in rows] == ["Acme =cup", "", "", ""]
    assert rows[0]["title"] == "'=cup", "no program takes it for a formula"
    book = openpyxl.load_workbook(io.BytesIO(b"".join(app.internals.exports.whole(LOCAL, job.id, "xlsx"))))
    cells = [[cell.value for cell in row] for row in book.worksheets[0].iter_rows()]
    assert [row[1] for row in cells] == ["status", "DONE", "ERROR", "ERROR", "NOT_FOUND"]
    with pytest.raises(DoesNotExist):
        app.internals.exports.whole(someone("bob"), job.id, "csv")


def test_a_job_without_a_file_is_exported_by_its_arguments(app: Duly, world: World) -> None:
    job = app.job("keep", [{"a": 1, "b": {"deep": True}}, {"a": 2}])
    world.run()
    rows = table(app.internals.exports.whole(LOCAL, job.id, "csv"))
    assert [(row["a"], row["b"], row["result"]) for row in rows] == [("1", '{"deep":true}', ""), ("2", "", "")]
    assert table(app.internals.exports.whole(LOCAL, app.job("keep", []).id, "csv")) == []


def test_an_export_has_all_arguments_and_results_of_whatever_kind(app: Duly, world: World) -> None:
    job = app.job("say", [{"what": {"b": 1}, "z": 1}, {"what": "plain", "a": 2}, {"what": None}])
    world.run()
    rows = table(app.internals.exports.whole(LOCAL, job.id, "csv"))
    assert list(rows[0]) == ["row", "status", "what", "z", "a", "b", "result", "attempts", "error"]
    assert [(row["z"], row["a"], row["b"], row["result"]) for row in rows] == [
        ("1", "", "1", ""), ("", "2", "", "plain"), ("", "", "", "")
    ]  # fmt: skip
    own = app.job("say", [{"what": {"result": "mine"}}, {"what": [1]}])
    world.run()
    assert [row["result"] for row in table(app.internals.exports.whole(LOCAL, own.id, "csv"))] == ["mine", "[1]"]


def test_rejects_are_mended_and_join_their_job_row_by_row(app: Duly, world: World) -> None:
    job = send(app, TABLE)
    world.run()
    rejects = table(app.internals.exports.rejects(LOCAL, job.id, "csv"))
    assert [(row["duly row"], row["title"]) for row in rejects] == [("2", "broken"), ("3", "pot")]
    assert "'many' is not a number" in rejects[1]["duly error"]
    head = "duly row,duly error,title,brand,price\n"
    text = f"{head}2,,'=mug,Acme,2\n3,,pot,,4\n1,,cup,,5\n4,,pan,,\nx,,pan,,\n3,,pan,,much\n"
    told = mend(app.internals.intake, LOCAL, job.id, io.BytesIO(text.encode()), "mended.csv")
    assert (told.rows, told.mended, told.refused) == (6, 2, 4)
    assert {refusal.line: refusal.reason for refusal in told.refusals}[4] == "row 1 of the job is not in error"
    assert look(app, job).finished_at is None
    world.run()
    over = look(app, job)
    assert (over.total, over.done, over.failed, over.not_found, over.is_over) == (4, 3, 0, 1, True)
    rows = list(app.internals.verbs.job_rows.each(LOCAL, job.id))
    assert (rows[1].result["found"], rows[1].input["title"], rows[2].args["price"]) == ("Acme =mug", "=mug", "4")
    assert table(app.internals.exports.rejects(LOCAL, job.id, "csv")) == []


def test_what_rejects_mask_or_leave_out_stays_as_it_came(app: Duly, world: World) -> None:
    job = send(
        app, b'{"n": "1", "token": "s3cret", "note": "x"}\n' * 20 + b'{"n": "1", "late": "y"}\n{"n"\n', "rows.jsonl",
        job_type="counted",
    )  # fmt: skip
    world.run()
    assert look(app, job).failed == 22
    rejects = table(app.internals.exports.rejects(LOCAL, job.id, "csv"))
    assert (rejects[0]["token"], "late" in rejects[0]) == ("***", False)
    text = "duly row,n,token\n1,2,***\n2,2,other\n21,2,\n22,2,\n"
    assert mend(app.internals.intake, LOCAL, job.id, io.BytesIO(text.encode()), "mended.csv").mended == 4
    rows = {row.row_no: row for row in app.internals.verbs.job_rows.each(LOCAL, job.id)}
    assert rows[1].input == {"n": "2", "token": "s3cret", "note": "x"}
    assert rows[1].args["token"] == "s3cret"
    assert rows[2].input == {"n": "2", "token": "other", "note": "x"}
    assert rows[21].input == {"n": "2", "token": "", "late": "y"}
    assert rows[22].input == {"n": "2", "token": ""}, "the broken line is no column"


def test_one_row_is_mended_in_place(app: Duly, world: World) -> None:
    job = send(app, TABLE)
    world.run()
    came = refused(app.internals.intake, LOCAL, job.id, 3)
    assert (came.columns, came.values["title"], came.values["price"]) == (("title", "brand", "price"), "pot", "many")
    for values, problem in (({"price": "much"}, "'much' is not a number"), ({"prize": "4"}, "no column 'prize'")):
        with pytest.raises(InputError, match=problem):
            mend_row(app.internals.intake, LOCAL, job.id, 3, values)
    mend_row(app.internals.intake, LOCAL, job.id, 3, {"price": "4"})
    world.run()
    rows = {row.row_no: row for row in app.internals.verbs.job_rows.each(LOCAL, job.id)}
    assert (rows[3].status, rows[3].args["price"], rows[3].input["title"]) == ("DONE", "4", "pot")
    for act in (
        lambda: refused(app.internals.intake, LOCAL, job.id, 3),
        lambda: mend_row(app.internals.intake, LOCAL, job.id, 9, {}),
    ):
        with pytest.raises(WrongState, match="is not in error"):
            act()


def test_a_row_that_is_mended_keeps_what_is_masked(app: Duly, world: World) -> None:
    job = send(app, b'{"n": "1", "token": "s3cret"}\n', "rows.jsonl", job_type="counted")
    world.run()
    mend_row(app.internals.intake, LOCAL, job.id, 1, {"n": "2", "token": "***", "late": "y"})
    (row,) = app.internals.verbs.job_rows.each(LOCAL, job.id)
    assert row.input == {"n": "2", "token": "s3cret", "late": "y"}


def test_a_row_with_too_many_cells_is_mended_without_those(app: Duly, world: World) -> None:
    job = send(app, "n,token\n1,a,more\n", job_type="counted")
    world.run()
    mended = mend(app.internals.intake, LOCAL, job.id, io.BytesIO(b"duly row,n\n1,2\n"), "mended.csv")
    assert mended.mended == 1
    (row,) = app.internals.verbs.job_rows.each(LOCAL, job.id)
    assert row.input == {"n": "2", "token": "a"}


def test_rejects_of_a_workbook_come_back_too(app: Duly, world: World) -> None:
    job = send(app, TABLE)
    world.run()
    book = openpyxl.load_workbook(io.BytesIO(b"".join(app.internals.exports.rejects(LOCAL, job.id, "xlsx"))))
    book.worksheets[0]["C2"], book.worksheets[0]["E3"] = "mug", 4
    out = io.BytesIO()
    book.save(out)
    assert mend(app.internals.intake, LOCAL, job.id, out, "mended.xlsx").mended == 2
    world.run()
    assert look(app, job).done == 3


def test_what_cannot_be_mended_is_told(app: Duly, world: World) -> None:
    job = send(app, TABLE)
    world.run()
    with pytest.raises(InputError, match="has no column 'duly row'"):
        mend(app.internals.intake, LOCAL, job.id, io.BytesIO(TABLE.encode()), "mended.csv")
    with pytest.raises(InputError, match="was not made from a file"):
        mend(app.internals.intake, LOCAL, app.job("keep", []).id, io.BytesIO(TABLE.encode()), "mended.csv")
    with pytest.raises(DoesNotExist):
        mend(app.internals.intake, someone("bob"), job.id, io.BytesIO(TABLE.encode()), "mended.csv")


def test_a_job_is_compared_with_a_file_cell_by_cell(app: Duly, world: World) -> None:
    job = send(app, "title,sku\ncup,1\npot,2\n")
    world.run()
    file = io.BytesIO(b'title,found,other\ncup,cup,x\npan,"[1, 2]",y\nmore,more,z\n')
    export = io.BytesIO(b"".join(app.internals.exports.whole(LOCAL, job.id, "csv")))
    told = [(each.row, each.column, each.ours, each.theirs) for each in exported_differences(export, file, "old.csv")]
    assert told == [
        (2, "title", "pot", "pan"), (2, "found", "pot", "[1, 2]"), (3, None, "", "is there"),
    ]  # fmt: skip
    plain = app.job("keep", [{"a": True, "b": [1]}, {"a": 2.0}])
    same = io.BytesIO(b"a,b\ntrue,[1]\n2,\n")
    export = io.BytesIO(b"".join(app.internals.exports.whole(LOCAL, plain.id, "csv")))
    assert list(exported_differences(export, same, "old.csv")) == []


def test_views_tell_of_jobs_and_rows_in_the_words_of_their_lists(app: Duly, world: World) -> None:
    first, second = send(app, TABLE, who=someone("ana")), send(app, b"%PDF-", who=someone("ana"))
    paused, gone = app.job("keep", [{"a": 1}]), app.job("keep", [{"a": 1}])
    paused.pause()
    gone.remove()
    assert query(app.internals.store, f"select queue_state from duly_jobs where id = {first.id}") == [("QUEUED",)]
    world.run()
    found = query(
        app.internals.store,
        "select id, queue_state, total_items, processed_items, failed_items, user_id from duly_jobs",
    )
    assert sorted(found) == [
        (first.id, "DONE", 4, 4, 2, "ana"), (second.id, "FAILED", 0, 0, 0, "ana"), (paused.id, "PAUSED", 1, 0, 0, None),
    ]  # fmt: skip
    for row in app.internals.verbs.jobs.page(LOCAL):
        assert query(app.internals.store, f"select queue_state from duly_jobs where id = {row.id}") == [
            (row.queue_state,)
        ]
    columns = "row_no, status, job_type, user_id, attempts, locked_by, locked_at"
    items = query(
        app.internals.store, f"select {columns} from duly_job_items where job_id = {first.id} order by row_no"
    )
    assert [item[:2] for item in items] == [(1, "DONE"), (2, "ERROR"), (3, "ERROR"), (4, "NOT_FOUND")]
    assert {item[2:4] for item in items} == {("csv", "ana")}
    assert {item[5:] for item in items} == {(None, None)}
