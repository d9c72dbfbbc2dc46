"""Jobs over HTTP: files as streams, lists by keyset and by number, acts, exports."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from duly.client import Client
from duly.core.errors import DoesNotExist, DulyError, InputError, WrongState
from duly.verbs import job_rows
from duly.web import api, uploads
from duly.web.server import Service
from tests.support import scaled
from tests.web.conftest import FILES, House

TABLE = "text,password\nhello,secret\nbroken,\nlast,\n"


def send(house: House, content: str | bytes = TABLE, name: str = "texts.csv", **more: Any) -> Any:
    return house.ana.post("/api/jobs", files={"file": (name, content)}, **more)


def made(house: House, content: str | bytes = TABLE, **more: Any) -> int:
    answer = send(house, content, **more)
    assert answer.status_code == 201, answer.text
    return int(answer.json()["jobId"])


def numbered(count: int) -> str:
    return "text\n" + "".join(f"t{n}\n" for n in range(1, count + 1))


def files() -> int:
    return len(list((FILES / "uploads").glob("*")))


def test_a_file_is_sent_followed_and_exported(house: House) -> None:
    job = made(house)
    assert house.ana.get(f"/api/jobs/{job}").json()["queueState"] == "QUEUED"
    house.world.run()
    shown = house.ana.get(f"/api/jobs/{job}").json()
    assert (shown["queueState"], shown["totalItems"], shown["processedItems"], shown["failedItems"]) == (
        "DONE",
        3,
        3,
        1,
    )
    assert (shown["userId"], shown["jobType"], shown["isComplete"]) == ("ana", "csv", True)
    assert [each["id"] for each in house.ana.get("/api/jobs").json()["items"]] == [job]
    assert house.ana.get("/api/jobs", params={"jobType": "image"}).json()["items"] == []
    grid = house.ana.get(f"/api/jobs/{job}/items").json()["items"]
    assert [(row["row"], row["status"]) for row in grid] == [(1, "DONE"), (2, "ERROR"), (3, "DONE")]
    assert grid[0]["result"] == {"text": "hello", "password": "***"}
    exported = house.ana.post(f"/api/jobs/{job}/export", params={"format": "csv"})
    assert exported.headers["content-disposition"] == f'attachment; filename="job-{job}.csv"'
    table = list(csv.DictReader(io.StringIO(exported.content.decode("utf-8-sig"))))
    assert [row["text (result)"] for row in table] == ["hello", "", "last"]
    assert table[0]["password"] == "***", "as the grid says"
    assert [row["error"] for row in table] == ["", grid[1]["lastError"], ""]
    rejects = house.ana.get(f"/api/jobs/{job}/rejects", params={"format": "csv"}).content.decode("utf-8-sig")
    assert [row["duly row"] for row in csv.DictReader(io.StringIO(rejects))] == ["2"]
    assert house.ana.get(f"/api/jobs/{job}/export").content.startswith(b"PK")


def test_a_slice_of_a_job_is_worked_off_inside_the_request(house: House) -> None:
    job = house.app.job("echo", [{"text": f"t{n}"} for n in range(20)], owner="ana")
    path = f"/api/jobs/{job.id}/kickoff"
    assert house.bob.post(path).status_code == 404
    assert house.ana.post(path, params={"durationMs": 30_000}).status_code == 422
    told = house.ana.post(path, params={"durationMs": 20_000})
    assert told.status_code == 200, told.text
    assert (told.json()["processed"], told.json()["ended"]) == (20, {"DONE": 20})
    assert told.json()["job"]["queueState"] == "DONE"


def test_what_is_said_of_a_file_may_be_a_field_or_a_query(house: House) -> None:
    answer = send(house, data={"jobType": "csv", "delimiter": ";", "header": "true", "mapping": "{}"})
    assert answer.status_code == 201, answer.text
    assert send(house, params={"jobType": "stock"}).json()["field"] == "jobType"
    for data, field in (
        ({"mapping": "{"}, "mapping"), ({"mapping": "[]"}, "mapping"), ({"delimiter": ";;"}, "delimiter"),
        ({"colour": "red"}, "colour"),
    ):  # fmt: skip
        answer = send(house, data=data)
        assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


def test_what_is_refused_is_not_kept(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files()
    assert send(house, params={"jobType": "stock"}).status_code == 422
    assert send(house, data={"mapping": "{"}).status_code == 422
    settings = house.app.internals.intake.settings
    object.__setattr__(settings, "upload_max_bytes", 10)
    try:
        answer = send(house)
    finally:
        object.__setattr__(settings, "upload_max_bytes", 4 * 1024**3)
    assert (answer.status_code, answer.json()["field"]) == (413, "file")
    assert files() == before


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\ntext\n", 400),
        (b"nonsense", 400),
        (b"--x\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\ntext\r\n--x--\r\n", 422),
        (2 * b"--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\ntext\r\n" + b"--x--\r\n", 422),
        (
            b"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" + b"x" * uploads.FIELD + b"xx\r\n--x--\r\n",
            413,
        ),
        (
            b"".join(b"--x\r\nContent-Disposition: form-data; name=\"%d\"\r\n\r\n1\r\n" % n for n in range(30))
            + b"--x--\r\n",
            422,
        ),
    ],
)  # fmt: skip
def test_a_form_that_is_none(house: House, content: bytes, status: int) -> None:
    before = files()
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    assert house.ana.post("/api/jobs", content=content, headers=headers).status_code == status
    assert files() == before
    headers = {"Content-Type": "multipart/form-data"}
    assert house.ana.post("/api/jobs", content=content, headers=headers).status_code == 415


def test_a_boundary_that_is_too_long_is_refused(house: House) -> None:
    before = files()
    headers = {"Content-Type": f"multipart/form-data; boundary={'x' * 257}"}
    assert house.ana.post("/api/jobs", content=b"", headers=headers).status_code == 400
    assert files() == before


@pytest.mark.parametrize(("name", "value", "field"), [(b"sheet", b"\xff", "sheet"), (b"\xff", b"x", "a field")])
def test_fields_are_utf8(house: House, name: bytes, value: bytes, field: str) -> None:
    before = files()
    said = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name, value)
    file = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\ntext\nhi\n\r\n--x--\r\n'
    answer = house.ana.post(
        "/api/jobs", content=said + file, headers={"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert files() == before


def test_the_same_key_again_is_the_same_job(house: House) -> None:
    headers = {"Idempotency-Key": "march"}
    first = made(house, headers=headers)
    before = files()
    assert made(house, headers=headers) == first
    assert files() == before
    assert house.bob.post("/api/jobs", files={"file": ("a.csv", TABLE)}, headers=headers).json()["jobId"] != first


def test_a_key_stands_for_one_request(house: House, tmp_path: Path) -> None:
    headers = {"Idempotency-Key": "april"}
    first = made(house, headers=headers)
    before = files()
    used = "Idempotency-Key: was already used for another request"
    for answer in (
        send(house, "text\nother\n", headers=headers), send(house, headers=headers, params={"jobType": "image"})
    ):  # fmt: skip
        assert (answer.status_code, answer.json()["field"]) == (422, "Idempotency-Key"), answer.text
        assert answer.json()["detail"] == used
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(TABLE)
    settings = house.app.internals.intake.settings
    object.__setattr__(settings, "inbox", str(tmp_path))
    try:
        ordered: dict[str, Any] = {"json": {"source": "file:a.csv"}, "headers": {"Idempotency-Key": "may"}}
        job = house.root.post("/api/jobs", **ordered).json()["jobId"]
        for state in ("ordered", "read"):
            assert house.root.post("/api/jobs", **ordered).json() == {"jobId": job}, state
            other = {**ordered, "json": {"source": "file:b.csv"}}
            assert house.root.post("/api/jobs", **other).json()["detail"] == used, state
            sent = {"files": {"file": ("texts.csv", TABLE)}, "headers": ordered["headers"]}
            assert house.root.post("/api/jobs", **sent).json()["detail"] == used, state
            house.world.run()
    finally:
        object.__setattr__(settings, "inbox", "")
    assert files() == before + 1
    house.ana.delete(f"/api/jobs/{first}")
    assert made(house, headers=headers) != first, "the key of a removed job is free again"


def test_a_file_may_be_named_by_its_address(house: House, tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text(TABLE)
    answer = house.root.post("/api/jobs", json={"source": "file:texts.csv"})
    assert (answer.status_code, answer.json()["field"]) == (422, "source")
    settings = house.app.internals.intake.settings
    object.__setattr__(settings, "inbox", str(tmp_path))
    try:
        answer = house.root.post("/api/jobs", json={"source": "file:texts.csv", "jobType": "csv"})
    finally:
        object.__setattr__(settings, "inbox", "")
    assert answer.status_code == 201, answer.text
    for source in ("s3://bucket/key.csv", "ftp://host/a.csv", "http://host/a.csv", "file:../a.csv"):
        assert house.root.post("/api/jobs", json={"source": source}).json()["field"] == "source"
    assert house.root.post("/api/jobs", json={"source": 7}).json()["field"] == "source"


def test_only_admins_and_the_owner_of_scans_take_files_from_where_they_are_dropped(
    house: House, tmp_path: Path
) -> None:
    (tmp_path / "texts.csv").write_text(TABLE)
    settings, asked = house.app.internals.intake.settings, {"source": "file:texts.csv"}
    object.__setattr__(settings, "inbox", str(tmp_path))
    object.__setattr__(settings, "scan_owner", "bob")
    try:
        refused = house.ana.post("/api/jobs", json=asked)
        assert (refused.status_code, house.bob.post("/api/jobs", json=asked).status_code) == (403, 201)
        narrow = house.key("root", "read", "write")
        assert narrow.post("/api/jobs", json=asked).status_code == 403
        assert house.local().post("/api/jobs", json=asked).status_code == 201
    finally:
        object.__setattr__(settings, "inbox", "")
        object.__setattr__(settings, "scan_owner", "")
    assert "only admins and the user in scan_owner" in refused.json()["detail"]
    assert (tmp_path / "texts.csv").exists()


def test_a_preview_keeps_nothing(house: House) -> None:
    before = files()
    answer = house.ana.post("/api/jobs/preview", files={"file": ("texts.csv", TABLE)})
    assert (answer.json()["columns"], len(answer.json()["rows"])) == (["text", "password"], 3)
    assert house.ana.post("/api/jobs/preview", json={}).status_code == 415
    assert house.ana.post("/api/jobs/preview", files={"file": ("a.csv", "")}).status_code == 422
    assert (files(), house.ana.get("/api/jobs").json()["items"]) == (before, [])


def walked(house: House, path: str, **params: Any) -> list[int]:
    found: list[int] = []
    while True:
        page = house.ana.get(path, params=params).json()
        found += [row["row"] for row in page["items"]]
        if page["next"] is None:
            return found
        params["after"] = page["next"]


def test_rows_come_in_pages_by_number_and_by_keyset(house: House) -> None:
    job = made(house, numbered(25))
    house.world.run()
    path = f"/api/jobs/{job}/items"
    assert walked(house, path, pageSize=10) == list(range(1, 26))
    assert sorted(walked(house, path, pageSize=10, sort="updatedAt")) == list(range(1, 26))
    assert sorted(walked(house, path, pageSize=7, status="DONE")) == list(range(1, 26))
    assert walked(house, path, statuses="PENDING,PROCESSING") == []
    assert [row["row"] for row in house.ana.get(path, params={"page": 3, "pageSize": 10}).json()["items"]] == [
        21, 22, 23, 24, 25
    ]  # fmt: skip
    assert house.ana.get(path, params={"page": 4, "pageSize": 10}).json() == {"items": [], "next": None}
    for params, field in (
        ({"page": 1, "status": "DONE"}, "page"), ({"sort": "row", "status": "DONE"}, "sort"),
        ({"statuses": "GONE"}, "statuses"), ({"after": "bm90aGluZw"}, "after"),
    ):  # fmt: skip
        assert house.ana.get(path, params=params).json()["field"] == field


def test_lists_never_carry_the_whole_input(house: House) -> None:
    big = "x" * 50_000
    job = house.app.job("keep", [{"title": "y" * 500, "description": big, "text": "t"}], owner="ana")
    (row,) = house.ana.get(f"/api/jobs/{job.id}/items").json()["items"]
    assert row["inputSummary"] == {"title": "y" * 119 + "…", "brand": None, "sku": None}
    assert big not in json.dumps(row)


def test_pending_rows_of_all_jobs(house: House) -> None:
    jobs = [made(house, numbered(3)), made(house, numbered(2))]
    house.bob.post("/api/jobs", files={"file": ("a.csv", numbered(1))})
    for job in jobs:
        house.ana.post(f"/api/jobs/{job}/pause")
    house.world.run()
    assert len(walked(house, "/api/pending", pageSize=2)) == 5
    assert len(house.root.get("/api/pending", params={"userId": "all"}).json()["items"]) == 5
    assert walked(house, "/api/pending", jobType="image") == []
    assert house.ana.get("/api/pending", params={"statuses": "DONE"}).json()["field"] == "statuses"
    settings = house.app.internals.verbs.context.job_settings
    object.__setattr__(settings, "pending_enabled", False)
    try:
        assert house.ana.get("/api/pending").status_code == 404
    finally:
        object.__setattr__(settings, "pending_enabled", True)


def test_rows_of_removed_jobs_are_shown_no_more_and_those_of_paused_ones_still_are(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_rows, "PORTION", 2)
    gone, paused = made(house, numbered(3)), made(house, numbered(2))
    for job in (gone, paused):
        house.ana.post(f"/api/jobs/{job}/pause")
    house.world.run()
    assert len(walked(house, "/api/pending", pageSize=2)) == 5
    house.ana.delete(f"/api/jobs/{gone}")
    for who in (house.ana, house.root):
        rows = who.get("/api/pending", params={"pageSize": 1}).json()["items"]
        assert {row["jobId"] for row in rows} == {paused}, "at once, and not when its rows are gone"
    assert [each["id"] for each in house.ana.get("/api/jobs").json()["items"]] == [paused]
    assert house.ana.get("/api/jobs").json()["items"][0]["queueState"] == "PAUSED"
    house.world.run()
    assert walked(house, "/api/pending", jobType="csv", pageSize=1) == [1, 2]


def test_rows_of_one_moment_are_on_one_page_each(house: House) -> None:
    job = made(house, numbered(23))
    house.ana.post(f"/api/jobs/{job}/pause")
    house.world.run()
    moments = {row["updatedAt"] for row in house.ana.get(f"/api/jobs/{job}/items").json()["items"]}
    assert len(moments) == 1, "the clock stands still"
    for path in (f"/api/jobs/{job}/items", "/api/pending"):
        assert walked(house, path, statuses="PENDING,PROCESSING", pageSize=5) == list(range(1, 24))


def test_a_job_is_paused_resumed_cancelled_reprocessed_and_removed(house: House) -> None:
    job = made(house)
    assert house.ana.post(f"/api/jobs/{job}/pause").json()["queueState"] == "PAUSED"
    house.world.run()
    assert house.ana.get(f"/api/jobs/{job}").json()["processedItems"] == 0
    assert house.ana.post(f"/api/jobs/{job}/resume").json()["queueState"] == "QUEUED"
    house.world.run()
    assert house.ana.post(f"/api/jobs/{job}/cancel").status_code == 409
    failed = house.ana.get(f"/api/jobs/{job}/items", params={"status": "ERROR"}).json()["items"][0]["id"]
    asked = {"scope": "items", "itemIds": [failed]}
    assert house.ana.post(f"/api/jobs/{job}/reprocess", json=asked).json() == {"items": 1}
    assert house.ana.get(f"/api/jobs/{job}").json()["queueState"] == "RUNNING"
    house.world.run()
    assert house.ana.post(f"/api/jobs/{job}/reprocess").json() == {"items": 1}
    assert house.ana.post(f"/api/jobs/{job}/reprocess", json={"scope": "items"}).json()["field"] == "itemIds"
    assert house.ana.delete(f"/api/jobs/{job}").status_code == 204
    assert house.ana.get(f"/api/jobs/{job}").status_code == 404
    assert house.ana.get(f"/api/jobs/{job}/items").status_code == 404
    house.world.run()
    assert house.ana.get("/api/jobs").json()["items"] == []
    actions = [line["action"] for line in house.audit(f"job:{job}")]
    assert actions == ["job.removed", "job.reprocessed", "job.resumed", "job.paused", "job.created"]


def test_admins_have_dropped_files_made_jobs_of(house: House, tmp_path: Path) -> None:
    settings, inbox = house.app.internals.intake.settings, tmp_path / "inbox"
    inbox.mkdir()
    object.__setattr__(settings, "inbox", str(inbox))
    object.__setattr__(settings, "scan_settle_seconds", 0.0)
    (inbox / "texts.csv").write_text(TABLE)
    assert house.ana.post("/api/ingestion/scan").status_code == 403
    told = house.root.post("/api/ingestion/scan").json()
    assert (told["found"], told["took"], told["taken"][0]["source"]) == (1, 1, "file:texts.csv")
    assert house.root.post("/api/ingestion/scan", json={"again": True}).json()["found"] == 0
    house.world.run()
    assert house.root.get(f"/api/jobs/{told['taken'][0]['jobId']}").json()["processedItems"] == 3
    assert house.ana.get("/api/jobs").json()["items"] == [], "they are nobody's"
    assert [line["action"] for line in house.audit("sources")] == ["sources.scanned"] * 2


def test_a_row_in_error_is_mended_in_place(house: House) -> None:
    job = made(house)
    row = f"/api/jobs/{job}/rows/2"
    house.world.run()
    assert house.ana.get(row).json() == {
        "row": 2, "columns": ["text", "password"], "values": {"text": "broken", "password": "***"},
    }  # fmt: skip
    assert (
        house.bob.get(row).status_code
        == house.bob.post(f"{row}/mend", json={"values": {"text": "x"}}).status_code
        == 404
    )
    for body in ({"values": {}}, {"text": "x"}, {"values": {"text": "x"}, "rows": 1}):
        assert house.ana.post(f"{row}/mend", json=body).status_code == 422
    strange = house.ana.post(f"{row}/mend", json={"values": {"txt": "x"}})
    assert (strange.status_code, "has no column 'txt'" in strange.json()["detail"]) == (422, True)
    again = {"Idempotency-Key": "mend-2"}
    for _ in range(2):
        assert house.ana.post(f"{row}/mend", json={"values": {"text": "fine"}}, headers=again).json() == {"row": 2}
    house.world.run()
    assert house.ana.get(f"/api/jobs/{job}").json()["doneItems"] == 3
    assert house.ana.get(row).status_code == 409
    types = {each["name"]: each for each in house.ana.get("/api/jobs/types").json()["items"]}
    assert types["csv"]["fields"] is None
    assert "csv" in types["csv"]["kinds"]


# -- on a real socket


def test_a_file_that_is_too_large_is_told_of_through_the_client(house: House) -> None:
    settings = house.app.internals.intake.settings
    object.__setattr__(settings, "upload_max_bytes", 10)
    try:
        with Service(house.app, "127.0.0.1", 0) as service, Client(service.url) as client:
            with pytest.raises(InputError, match="more than 10 bytes") as caught:
                client.create_job(io.BytesIO(bytes(50_000_000)), "large.csv")
            assert caught.value.field == "file"
    finally:
        object.__setattr__(settings, "upload_max_bytes", 4 * 1024**3)


def test_a_large_file_is_streamed_through_the_client_and_back(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = scaled(1_000, 5_000)
    monkeypatch.setattr(api, "BODY_LIMIT", 1_000)
    monkeypatch.setattr(uploads, "PORTION", 2 * rows)
    with Service(house.app, "127.0.0.1", 0) as service, Client(service.url) as client:
        job = client.create_job(io.BytesIO(numbered(rows).encode()), 'a "strange"\n.csv', job_type="csv")
        assert client.preview_job(io.BytesIO(TABLE.encode()), "a.csv", header=True).has_header
        house.world.run()
        assert client.job(job).done_items == rows
        out = io.BytesIO()
        client.export_job(job, out, "csv")
        assert out.getvalue().count(b"\r\n") == rows + 1
        rejects = io.BytesIO()
        client.export_rejects(job, rejects, "csv")
        assert rejects.getvalue().count(b"\r\n") == 1
        assert "csv" in {each.name for each in client.job_types()}
        for act in (lambda: client.refused_row(job, 1), lambda: client.mend_row(job, 1, {"text": "x"})):
            with pytest.raises(WrongState, match="is not in error"):
                act()
        with pytest.raises(DoesNotExist, match="there is no job 999999"):
            client.export_job(999_999, out)
        with pytest.raises(DulyError, match="source"):
            client.fetch_job("file:a.csv")
        assert next(client.jobs()).id == job
        assert next(client.job_items(job, most=1)).row_no == 1
        assert list(client.pending()) == []
        assert client.pause_job(job).queue_state == client.resume_job(job).queue_state == "DONE"
        assert client.reprocess_job(job, statuses=["ERROR"]) == 0
        with pytest.raises(WrongState, match="is over"):
            client.cancel_job(job)
        client.remove_job(job)
