"""Whatever is sent to whatever operation: no 5xx, no status or content that the OpenAPI document does not know.

CI spends some twenty seconds on each database, the same way every time; `make fuzz` sets DULY_TEST_FUZZ, how many times
as many examples there are, and tries others every time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import schemathesis
from anyio.from_thread import BlockingPortal
from argon2 import PasswordHasher
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from duly import Duly
from duly.verbs import LOCAL, users
from duly.web.problems import MEDIA_TYPE
from tests.support import scaled
from tests.web.conftest import ANYWHERE, LATER, api_on, build, client_of
from tests.web.test_matrix import DOCUMENT, OPERATIONS, PERSON

FUZZ = int(os.environ.get("DULY_TEST_FUZZ", "0"))
EXAMPLES = max(FUZZ, 1)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
HOME = "http://127.0.0.1"

# What a generator would hardly think of, by the name of the field.
WORDS: dict[str, list[Any]] = {
    "task": ["echo", "http", "remind", "catalog.sync", "birthday", "duly.acts"],
    "rule": [
        "daily 09:00", "every 1s", "every 99999999999d", "slots 24", "slots 0", "slots 999999", "0 0 29 2 *",
        "yearly 02-29 09:00", "0 0 31 2 *", "@daily", "* * * * * *", "weekly mon 25:00", "every 0s", "every 1e9s",
        "monthly 31 09:00", "every -1m", "daily 02:30,03:00",
    ],
    "zone": ["Europe/Zagreb", "../../etc/passwd", "Europe", "", "UTC\u0000", "/", "a" * 200],
    "args": [
        {"text": "x"}, {"text": "\u0000"}, {"text": "\ud800"}, {"\ud800": 1}, {"text": 10**400}, {"text": float("nan")},
        {"text": "x", "key": "ana/k"}, {"text": "x", "self": 1}, {"text": "x", "connection": 1}, {"rule": 1},
        {"url": "http://127.0.0.1/"}, {"url": "https://example.com/", "headers": {"a\n": "b"}}, {"url": "http://["},
        {"text": "x", "max_lateness": -1}, {"user_id": "ana", "sku": "x"}, {"x": json.loads("[" * 60 + "]" * 60)},
    ],
    "at": [LATER, "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9800-01-01T00:00Z", 1e18, -1, 0],
    "expiresAt": [LATER, "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9800-01-01T00:00Z"],
    "maxLateness": [0, 1e-9, 3e9],
    "delay": [0, 1e-9, 3e9],
    "key": ["k", "ana/k", " ", "x" * 500, "\u0085"],
    "phone": ["+385 1 234", "+1"],
    "birthday": ["02-29", "1990-02-30", "0000-01-01", "12-31", "٠١-٠١"],
    "limit": ["2/1m", "4", "0", "1e9/s", "-1", "1/0s", "٣/1m", "9" * 40],
    "userId": ["ana", "me", "all", "nobody", "local", "\u0000"],
    "scopes": [["read"], ["admin"], ["read", "read"]],
    "rate": [1e-9, 10_000, 0.5],
    "errorGroup": ["f" * 16, "\u0000"],
}  # fmt: skip


@pytest.fixture
def app(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Duly]:
    # This is not about passwords.
    monkeypatch.setattr(users, "_hasher", lambda: PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    app = build(database_url)
    yield app
    app.close()


@pytest.fixture
def known(app: Duly, portal: BlockingPortal) -> dict[str, list[Any]]:
    """Rows of Ana's and of the local admin's, by the name of the parameter that means them."""
    app.internals.verbs.users.create(LOCAL, "ana", "admin")
    app.internals.verbs.users.create(LOCAL, "bob")
    secret = app.internals.verbs.users.make_key(LOCAL, "ana", "fuzz", ("read", "write"))[1]
    found: dict[str, list[Any]] = {
        "user": ["ana", "bob"], "person": ["friend"], "sku": ["box/1"], "name": ["echo", "http/acme"],
        "ring": ["catalog.sync"], "secret": [secret],
    }  # fmt: skip
    ana = client_of(api_on(app, ANYWHERE), portal, headers={"Authorization": f"Bearer {secret}"})
    local = client_of(api_on(app), portal)
    for client in (ana, local):
        made = {
            "item_id": client.post("/api/items", json={"task": "echo", "args": {"text": "x"}, "at": LATER}),
            "schedule_id": client.post(
                "/api/schedules", json={"task": "echo", "key": "k", "rule": "every 1h", "args": {"text": "x"}}
            ),
            "reminder_id": client.post("/api/reminders", json={"phone": "+385 1 234", "message": "x", "at": LATER}),
            "act_id": client.post("/api/acts", json={"action": "cancel", "filter": {"task": "none"}}),
            "key_id": client.post("/api/keys", json={"name": "x", "userId": "ana"}),
        }
        for name, answer in made.items():
            found.setdefault(name, []).append(answer.json()["id"])
        sent = {"file": ("texts.csv", "text\nx\n")}
        found.setdefault("job_id", []).append(client.post("/api/jobs", files=sent).json()["jobId"])
        client.post("/api/products", json={"sku": "box/1"})
        client.post("/api/people", json=PERSON)
        client.close()
    return found


@st.composite
def spiced(draw: st.DrawFn, cases: st.SearchStrategy[schemathesis.Case], known: dict[str, list[Any]]) -> Any:
    """A generated request, some parts of which mean something here."""
    case = draw(cases)
    for name in list(case.path_parameters or {}):
        if name in known and draw(st.booleans()):
            case.path_parameters[name] = draw(st.sampled_from(known[name]))
    if isinstance(case.body, dict):
        for name in sorted(set(case.body) & set(WORDS)):
            if draw(st.booleans()):
                sent = [value for value in WORDS[name] if "nan" not in repr(value)]  # schemathesis refuses to send it
                case.body[name] = draw(st.sampled_from(sent))
    return case


@cache
def requests_to(api: FastAPI, mode: GenerationMode) -> list[st.SearchStrategy[schemathesis.Case]]:
    """What there is to send to each operation: the same on every database, and slow to work out."""
    schema = schemathesis.openapi.from_dict(api.openapi())
    schema.app = api
    operations = [found.ok() for found in schema.get_all_operations()]
    if mode is GenerationMode.NEGATIVE:
        operations = [each for each in operations if each.body or any(each.iter_parameters())]
    return [each.as_strategy(generation_mode=mode) for each in operations]


def fuzz(api: FastAPI, known: dict[str, list[Any]], mode: GenerationMode, headers: dict[str, str]) -> None:
    api.state.closing.set()  # streams end after their first words
    for cases in requests_to(api, mode):

        @settings(
            max_examples=EXAMPLES, deadline=None, derandomize=not FUZZ, database=None,
            suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate, Phase.shrink],
        )  # fmt: skip
        @given(case=spiced(cases, known))
        def ask(case: schemathesis.Case) -> None:
            case.call_and_validate(base_url=HOME, headers=headers, checks=CHECKS)

        ask()


# In one worker process, which works the requests out once.
together = pytest.mark.xdist_group("fuzz")


@together
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=str)
def test_whatever_the_local_admin_sends(app: Duly, known: dict[str, list[Any]], mode: GenerationMode) -> None:
    fuzz(api_on(app), known, mode, {})


@together
def test_whatever_a_user_sends(app: Duly, known: dict[str, list[Any]]) -> None:
    headers = {"Authorization": f"Bearer {known['secret'][0]}"}
    fuzz(api_on(app, ANYWHERE), known, GenerationMode.POSITIVE, headers)


# -- by hand: what no schema describes

JSON = {"Content-Type": "application/json"}
BODIES: dict[str, tuple[dict[str, str], bytes]] = {
    "not JSON": (JSON, b"{"),
    "not UTF-8": (JSON, b'{"task": "\xff\xfe"}'),
    "a lone surrogate in a name": (JSON, b'{"\\ud800": 1}'),
    "NUL in a name": (JSON, b'{"\\u0000": "\\u0000"}'),
    "not an object": (JSON, b"[1, null, NaN]"),
    "null": (JSON, b"null"),
    "very deep": (JSON, b'{"args": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    "a number without end": (JSON, b'{"rank": ' + b"9" * 10_000 + b"}"),
    "infinity": (JSON, b'{"delay": 1e999, "rate": Infinity, "n": -Infinity}'),
    "form": ({"Content-Type": "application/x-www-form-urlencoded"}, b"a=b"),
    "text": ({"Content-Type": "text/plain"}, b"{}"),
    "no type": ({}, b"{}"),
    "another charset": ({"Content-Type": "application/json; charset=utf-16"}, '{"a": 1}'.encode("utf-16")),
    "empty": (JSON, b""),
}
QUERIES = [
    "pageSize=1&pageSize=2&userId=me&userId=all", "after=%00", "after=%ED%A0%80", "userId=%00", "task=%00", "key=%ff",
    "pageSize=99999999999999999999", "scheduleId=0", "state=", "reveal=perhaps", "most=-1", "subject=%00", "ring=%00",
    "&&&===", "slot=1e3", "after=" + "A" * 499, "after=" + "A" * 10_000, "errorGroup=%0a",
]  # fmt: skip
HEADERS: list[dict[str, str]] = [
    {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": "Basic YTpi"},
    {"Authorization": "Bearer duly_000000000000_" + "A" * 43}, {"Cookie": "__Host-duly=" + "x" * 4_000},
    {"Cookie": ";;=;\x7f"}, {"Origin": "http://["}, {"Origin": "null"}, {"Sec-Fetch-Site": "\x01"},
    {"Idempotency-Key": ""}, {"Idempotency-Key": "x" * 201}, {"Idempotency-Key": "a b"}, {"Last-Event-ID": "-1"},
    {"Last-Event-ID": "9" * 18}, {"Content-Length": "9" * 5_000}, {"Content-Length": "-1"}, {"Host": ""},
    {"Host": "["}, {"Host": "evil.example"}, {"Accept": "application/xml"}, {"Expect": "100-continue"},
]  # fmt: skip
PLACES = ["%00", "-1", "0", "9" * 30, "%ED%A0%80", "..%2F..", "%2F", "x" * 5_000, "%F0%9F%98%80", "'; drop--"]


# No database ever sees such a request, so that one is enough but for the long form.
ON_ONE = pytest.mark.parametrize("database_url", ["sqlite", "postgres"][: scaled(1, 2)], indirect=True)


@pytest.fixture
def ask(app: Duly, known: dict[str, list[Any]], portal: BlockingPortal) -> Iterator[Callable[..., None]]:
    """Sends one request to an operation and checks what comes of it."""
    api = api_on(app)
    api.state.closing.set()
    client = client_of(api, portal)
    places = {"act": "pause", "group_id": "f" * 16}

    def send(name: str, place: str | None = None, query: str = "", method: str = "", **more: Any) -> None:
        operation = OPERATIONS[name]
        parts = [part.strip("{}") for part in operation.path.split("/") if part.startswith("{")]
        path = {part: place or known.get(part, [places.get(part)])[0] for part in parts}
        url = operation.path.format(**path) + (f"?{query}" if query else "")
        answer = client.request(method or operation.method, url, **more)
        assert answer.status_code < 500 or answer.status_code == 503, (name, url, more, answer.text)
        methods = DOCUMENT["paths"][operation.path]
        documented = methods.get(method.lower(), methods[operation.method.lower()])["responses"]
        assert str(answer.status_code) in documented, (name, url, answer.status_code)
        if answer.status_code >= 400 and method != "HEAD":
            assert answer.headers["content-type"] == MEDIA_TYPE
            assert answer.json()["status"] == answer.status_code
        assert "default-src 'none'" in answer.headers["content-security-policy"]

    yield send
    client.close()


@ON_ONE
def test_a_body_that_is_none(ask: Callable[..., None]) -> None:
    for kind, (headers, content) in BODIES.items():
        for name, operation in OPERATIONS.items():
            if operation.method in ("POST", "PUT", "PATCH"):
                ask(name, headers=headers, content=content)
                ask(name, headers={**headers, "Idempotency-Key": f"{name}-{kind}".replace(" ", "-")}, content=content)


def test_odd_queries(ask: Callable[..., None]) -> None:
    for name in OPERATIONS:
        # A parameter that an operation does not know is never looked at: one of those is enough.
        for query in [query for query in QUERIES if _named(query) & {*declared(name), ""}] or QUERIES[:1]:
            ask(name, query=query)


def _named(query: str) -> set[str]:
    return {part.partition("=")[0] for part in query.split("&")}


def declared(name: str) -> set[str]:
    """The queries and headers that an operation looks at by itself."""
    operation = OPERATIONS[name]
    described = DOCUMENT["paths"][operation.path][operation.method.lower()]
    return {parameter["name"] for parameter in described.get("parameters", ())}


@ON_ONE
def test_odd_headers(ask: Callable[..., None]) -> None:
    special = {"Idempotency-Key", "Last-Event-ID"}  # of some operations only; the others are everybody's
    for name in OPERATIONS:
        for headers in [each for each in HEADERS if not (each.keys() & special) - declared(name)]:
            ask(name, headers=headers)


def test_odd_places(ask: Callable[..., None]) -> None:
    for name, operation in OPERATIONS.items():
        for place in PLACES if "{" in operation.path else ():
            ask(name, place=place)


@ON_ONE
def test_other_methods(ask: Callable[..., None]) -> None:
    for method in ("HEAD", "OPTIONS", "TRACE", "PUT", "PATCH", "DELETE", "BREW", "get"):
        for name in OPERATIONS:
            ask(name, method=method)


def test_odd_values(ask: Callable[..., None]) -> None:
    """Each odd value in an otherwise good body."""
    for name, schema in _bodies():
        for field in sorted(WORDS.keys() & schema["properties"].keys()):
            for value in WORDS[field]:
                content = json.dumps({**schema["examples"][0], field: value}).encode()
                ask(name, content=content, headers=JSON)


def _bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, operation in OPERATIONS.items():
        described = DOCUMENT["paths"][operation.path][operation.method.lower()]
        content = described.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            schema = content["application/json"]["schema"]
            reference = (schema.get("anyOf") or [schema])[0]["$ref"].rpartition("/")[2]
            yield name, DOCUMENT["components"]["schemas"][reference]


# -- the document itself


def test_the_document_is_complete() -> None:
    assert set(DOCUMENT["components"]["securitySchemes"]) == {"key", "session"}
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation["summary"], where
            assert operation["description"], where
            assert operation["tags"], where
            is_open = operation["operationId"] in ("sign_in", "sign_out", "healthz", "readyz")
            assert is_open == ("security" not in operation), where
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert list(response["content"]) == [MEDIA_TYPE], (where, status)
                elif status != "204":
                    for content in response["content"].values():
                        assert content.get("schema") != {}, where


def _below(model: type[Any]) -> Iterator[type[Any]]:
    for each in model.__subclasses__():
        yield each
        yield from _below(each)


def test_every_body_has_an_example_that_is_valid() -> None:
    from duly.web.schemas import Model

    models = {model.__name__: model for model in _below(Model)}
    found = dict(_bodies())
    assert len(found) > 15
    for schema in found.values():
        model = models[schema["title"]]
        for example in schema["examples"]:
            model.model_validate(example)
