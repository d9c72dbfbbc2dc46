"""`duly messages`, on the database and through a service: the same words, the same answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import Result
from google.protobuf import descriptor_pb2

from duly import Duly
from duly.apps.messages import message_retry_on
from duly.apps.messages.service import MessageRetry
from duly.bridge.consumer import Delivery
from duly.bridge.properties import Properties
from duly.bridge.retry_message_pb2 import DESCRIPTOR, RetryMessage
from duly.core.errors import WrongState
from duly.core.model import Done, GiveUp
from duly.verbs.audit import Audit
from duly.web.server import Service
from tests.bridge.support import retry_message
from tests.cli.conftest import call
from tests.support import claim, settle, share

ID = str(uuid4())
Run = Callable[..., Result]


@pytest.fixture
def service(database_url: str) -> Iterator[MessageRetry]:
    """A service that was told of two messages; no broker is needed to look at them."""
    app = Duly(database_url)
    one = message_retry_on(app)
    headers = Properties().with_headers({"tenant": "acme", "authorization": "Bearer x"})
    one.intake.keep([Delivery(retry_message(message_id=ID, error_reason="boom \x1b[2J"), headers)])
    other = retry_message(original_queue="mails", original_payload=b"\x00\xff")
    one.intake.keep([Delivery(other, Properties())])
    yield one
    app.close()


@pytest.fixture(params=["local", "remote"])
def run(request: pytest.FixtureRequest, service: MessageRetry, database_url: str) -> Iterator[Run]:
    if request.param == "local":
        yield lambda *words, **env: call(*words, DULY_DATABASE_URL=database_url, **env)
    else:
        with Service(service.app, "127.0.0.1", 0) as served:
            yield lambda *words, **env: call(*words, DULY_URL=served.url, **env)


def told(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def said(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def item(service: MessageRetry) -> Any:
    (row,) = [row for row in service.app.read.pages() if row.args["message_id"] == ID]
    return row


def to_review(service: MessageRetry) -> int:
    row = item(service)
    items = claim(service.app.internals.store, share(row.queue, task=row.task), tasks=[row.task], now=row.due_at)
    settle(service.app.internals.store, items, GiveUp("no more"), row.due_at)
    return int(row.id)


def test_messages_are_listed_and_found(run: Run) -> None:
    assert [row["queue"] for row in told(run("messages", "list", "--json"))] == ["mails", "orders"]
    for found in (("--queue", "orders"), ("--message-id", ID), ("--state", "waiting", "--queue", "orders")):
        (row,) = told(run("messages", "list", *found, "--json"))
        assert (row["message_id"], row["retry_count"], row["reason"]) == (ID, 0, "boom \x1b[2J")
    assert re.search(r"orders +waiting +0/3", said(run("messages", "list")))
    assert said(run("messages", "list", "--state", "failed")) == "no messages match\n"


def test_a_message_tells_its_story(run: Run, service: MessageRetry) -> None:
    text = said(run("messages", "show", str(item(service).id), "--utc"))
    assert f"message id   {ID}" in text
    assert "retries      0 of 3" in text
    assert "retry 0 boom \ufffd[2J" in text, "a stranger's words are no orders to a terminal"
    assert '"tenant":"acme"' in text
    assert text.endswith("hello\n")
    other = next(row for row in service.app.read.pages() if row.args["message_id"] != ID)
    assert said(run("messages", "show", str(other.id))).endswith("00 ff\n")
    assert told(run("messages", "show", str(other.id), "--json"))["payload"]["text"] is None


def test_a_message_in_review_is_sent_elsewhere_and_changed(run: Run, service: MessageRetry, tmp_path: Path) -> None:
    item_id = str(to_review(service))
    fixed = tmp_path / "fixed.bin"
    fixed.write_bytes(b"\x01mended")
    words = ("messages", "send", item_id, "--queue", "repair", "--payload", str(fixed), "--header", "by=ana")
    assert said(run(*words)) == f"message {item_id} is on its way\n"
    row = item(service)
    assert (row.state, row.args["queue"]) == ("waiting", "repair")
    shown = told(run("messages", "show", item_id, "--json"))
    assert shown["payload"]["hex"].startswith("01 6d")
    assert shown["properties"]["headers"]["by"] == "ana"


def test_a_message_is_published_again_and_its_bytes_are_downloaded(
    run: Run, service: MessageRetry, tmp_path: Path
) -> None:
    mails, _ = (row.id for row in service.app.read.page())
    later = service.app.clock.now() + timedelta(minutes=1)
    (item,) = claim(service.app.internals.store, share("message_retry/mails", task="message_retry"), now=later)
    settle(service.app.internals.store, item, Done(), later)
    assert run("messages", "payload", str(mails)).stdout_bytes == b"\x00\xff"
    said(run("messages", "payload", str(mails), "--out", str(tmp_path / "mail.bin")))
    assert (tmp_path / "mail.bin").read_bytes() == b"\x00\xff"
    assert "was published" in run("messages", "send", str(mails)).stderr
    line = said(run("messages", "send", str(mails), "--again"))
    assert re.fullmatch(rf"message {mails} is on its way again, as message \d+\n", line)
    (again,) = told(run("messages", "list", "--queue", "mails", "--state", "waiting", "--json"))
    assert again["replay_of"] == mails
    assert again["message_id"]
    (point,) = told(run("messages", "drift", "--json"))
    assert (point["items"], point["mean_seconds"] > 50) == (1, True)
    assert "1 messages" in said(run("messages", "drift"))


def test_a_waiting_message_is_edited_hurried_and_cancelled(run: Run, service: MessageRetry, tmp_path: Path) -> None:
    service.app.edit(item(service).id, at=service.app.clock.now() + timedelta(hours=1))
    before = item(service)
    item_id = str(before.id)
    fixed = tmp_path / "fixed.txt"
    fixed.write_text("other")
    assert said(run("messages", "edit", item_id, "--payload", str(fixed))) == f"message {item_id} is changed\n"
    assert item(service).due_at == before.due_at
    assert said(run("messages", "expedite", item_id)) == f"message {item_id} is due now\n"
    assert item(service).due_at < before.due_at
    assert said(run("messages", "cancel", item_id)) == f"message {item_id} is cancelled\n"
    assert item(service).state == "cancelled"
    refused = run("messages", "edit", item_id, "--queue", "x")
    assert (refused.exit_code, "cancelled" in refused.stderr) == (1, True)


def test_a_message_moves_to_the_line_of_its_new_queue(run: Run, service: MessageRetry) -> None:
    item_id = str(item(service).id)
    said(run("messages", "edit", item_id, "--queue", "repair"))
    assert item(service).queue == "message_retry/repair", "by which it is paused, too"
    assert [row["id"] for row in told(run("messages", "list", "--queue", "repair", "--json"))] == [int(item_id)]
    assert told(run("messages", "list", "--queue", "orders", "--json")) == []


def test_acts_on_messages_have_the_same_names_from_every_door(run: Run, service: MessageRetry) -> None:
    item_id = to_review(service)
    for words in (("edit", "--header", "by=ana"), ("expedite",), ("cancel",)):
        said(run("messages", words[0], str(item_id), *words[1:]))
    lines = service.app.internals.verbs.audit.page(f"item:{item_id}")
    assert [line.action for line in lines] == ["item.cancelled", "item.retried", "item.edited"]


def test_an_act_on_a_message_and_its_line_are_one(
    run: Run, service: MessageRetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise WrongState("no line")

    monkeypatch.setattr(Audit, "note_each", broken)
    assert run("messages", "cancel", str(item(service).id)).exit_code == 1
    assert item(service).state == "waiting"


def test_a_message_is_discarded_from_review(run: Run, service: MessageRetry) -> None:
    item_id = str(to_review(service))
    assert said(run("messages", "discard", item_id)) == f"message {item_id} is discarded\n"
    assert item(service).state == "cancelled"


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("show", "999"), 1, "there is no"),
        (("send", "ID", "--header", "none"), 2, "header: must be NAME=VALUE"),
        (("send", "ID", "--queue", "q" * 256), 2, "queue"),
        (("edit", "ID", "--payload", "/nowhere"), 2, "does not exist"),
    ],
)
def test_what_is_wrong_is_said(
    run: Run, service: MessageRetry, words: tuple[str, ...], code: int, complaint: str
) -> None:
    words = tuple(str(item(service).id) if word == "ID" else word for word in words)
    result = run("messages", *words)
    assert (result.exit_code, complaint in result.stderr) == (code, True), result.output


def test_payloads_are_decoded_by_the_type_that_their_queue_holds(database_url: str, tmp_path: Path) -> None:
    files = descriptor_pb2.FileDescriptorSet()
    DESCRIPTOR.CopyToProto(files.file.add())
    path = tmp_path / "types.pb"
    path.write_bytes(files.SerializeToString())
    inner = RetryMessage(message_id="inside", retry_count=7).SerializeToString()
    types = {"DULY_MESSAGE_DESCRIPTORS": str(path), "DULY_MESSAGE_TYPES": "nested=duly.bridge.RetryMessage"}
    app = Duly(database_url)
    service = message_retry_on(app)
    for queue, payload in (("nested", inner), ("nested", b"\xff\xff"), ("orders", inner)):
        body = retry_message(original_queue=queue, original_payload=payload, message_id=str(uuid4()))
        service.intake.keep([Delivery(body, Properties())])
    app.close()
    rows = told(call("messages", "list", "--json", DULY_DATABASE_URL=database_url, **types))
    shown = [
        told(call("messages", "show", str(row["id"]), "--json", DULY_DATABASE_URL=database_url, **types))
        for row in rows
    ]
    decoded = [row["payload"]["decoded"] for row in reversed(shown)]
    assert decoded == [{"messageId": "inside", "retryCount": 7}, None, None]
    last = str(rows[-1]["id"])
    text = said(call("messages", "show", last, DULY_DATABASE_URL=database_url, **types))
    assert 'decoded      {"messageId":"inside","retryCount":7}' in text


@pytest.mark.parametrize(
    ("descriptors", "types", "complaint"),
    [
        ("/nowhere.pb", "a=b.C", "message_descriptors: /nowhere.pb cannot be used"),
        ("{here}", "a=no.Such", "message_types"),
        ("", "orders", "message_types: must be like orders=shop.Order, got 'orders'"),
    ],
)
def test_types_that_are_not_there_are_a_mistake_of_the_settings(
    service: MessageRetry, database_url: str, tmp_path: Path, descriptors: str, types: str, complaint: str
) -> None:
    (tmp_path / "empty.pb").touch()
    given = {
        "DULY_MESSAGE_DESCRIPTORS": descriptors.format(here=tmp_path / "empty.pb"), "DULY_MESSAGE_TYPES": types,
        "DULY_DATABASE_URL": database_url,
    }  # fmt: skip
    result = call("messages", "list", **given)
    assert (result.exit_code, complaint in result.stderr) == (2, True), result.output
