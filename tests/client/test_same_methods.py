"""`app.client` and `duly.client.Client`: the same names, parameters, defaults and answers, called for real."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from duly import Duly
from duly.client import Client
from duly.core import filters
from duly.core.errors import DulyError, InputError
from duly.core.model import Failed
from duly.facade.local import Local
from duly.web.server import Service
from tests.apps.conftest import eventually
from tests.cli.test_doors import filled, remind
from tests.support import claim, settle, share

CSV = b"phone,n\n385,1\n386,many\n"
METHODS = sorted(name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_"))


def test_the_database_and_the_service_have_the_same_methods() -> None:
    local = Local(Duly("sqlite:///nowhere.db"))
    both = {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    assert {name for name in vars(Local) if not name.startswith("_")} == {*both, "http"}
    with pytest.raises(DulyError, match=r"no connection to a service: call other routes with duly\.client\.Client"):
        _ = local.http
    for name in sorted(both):
        ours = inspect.signature(getattr(local, name)).parameters
        takes_any = any(each.kind is each.VAR_KEYWORD for each in ours.values())
        theirs = [*inspect.signature(getattr(Client, name)).parameters.values()][1:]
        for each in theirs:
            mine = ours.get(each.name)
            if each.kind is each.VAR_KEYWORD:  # such as Unpack[ItemEdit]
                fields = getattr(
                    filters, each.annotation.removeprefix("Unpack[filters.").removesuffix("]")
                ).__annotations__
                assert takes_any or fields.keys() <= ours.keys(), f"{name} does not take all {each.name} on a database"
            elif mine is None:
                assert takes_any, f"{name} takes no {each.name} on a database"
                assert each.kind is each.KEYWORD_ONLY, f"{name} passes {each.name} by position"
            else:
                assert (mine.kind, mine.default) == (each.kind, each.default), f"{name}: {each.name} differs"
        by_place = [each.name for each in theirs if each.kind is each.POSITIONAL_OR_KEYWORD]
        assert [*ours][: len(by_place)] == by_place, f"{name} has its parameters in another order"


@pytest.fixture(params=["database", "service"])
def door(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Iterator[tuple[Duly, Client]]:
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "new.csv").write_bytes(CSV)
    settings = {"files_url": str(tmp_path / "kept"), "inbox": str(tmp_path / "inbox"), "pending_enabled": True}
    app = Duly(database_url, **settings)  # type: ignore[arg-type]
    for name in ("remind", "other"):
        app.task(name=name)(remind)
    app.job_type("csv", app.task(name="rows")(remind))
    if request.param == "database":
        with app.client as client:
            yield app, client
    else:
        with Service(app, "127.0.0.1", 0) as service, Client(service.url) as client:
            yield app, client
    app.close()


def calls(app: Duly, client: Any, ids: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """A call of every method; later ones use what earlier ones made."""
    job = ids["mended"]
    group = ids["group"]
    out = BytesIO()
    return {
        "put": lambda: client.put("remind", {"phone": "1"}, idempotency_key="k1", delay=900),
        "again": lambda: client.again(ids["failed"], idempotency_key="k2"),
        "item": lambda: client.item(ids["item"]),
        "story": lambda: client.story(ids["item"]),
        "items": lambda: client.items(most=2),
        "find_items": lambda: client.find_items(2),
        "item_counts": lambda: client.item_counts(),
        "edit": lambda: client.edit(ids["item"], rank=2),
        "retask": lambda: client.retask("remnd", "remind"),
        "tasks": lambda: client.tasks(),
        "create_job": lambda: client.create_job(BytesIO(CSV), "a.csv", idempotency_key="k3"),
        "fetch_job": lambda: client.fetch_job("file:new.csv"),
        "preview_job": lambda: client.preview_job(BytesIO(CSV), "a.csv"),
        "jobs": lambda: client.jobs(),
        "job": lambda: client.job(job),
        "job_items": lambda: client.job_items(job),
        "pending": lambda: client.pending(),
        "pending_counts": lambda: client.pending_counts(),
        "job_counts": lambda: client.job_counts(job),
        "job_types": lambda: client.job_types(),
        "refused_row": lambda: client.refused_row(job, 2),
        "export_rejects": lambda: client.export_rejects(job, out, "csv"),
        "mend_job": lambda: client.mend_job(job, BytesIO(b"duly row,phone,n\n1,385,one\n"), "a.csv"),
        "mend_row": lambda: client.mend_row(job, 2, {"n": 2}),
        "export_job": lambda: client.export_job(job, out, "csv"),
        "pause_job": lambda: client.pause_job(job),
        "resume_job": lambda: client.resume_job(job),
        "kick_off_job": lambda: client.kick_off_job(job, 0.1),
        "reprocess_job": lambda: client.reprocess_job(job),
        "check_job": lambda: client.check_job(job),
        "cancel_job": lambda: client.cancel_job(ids["job"], "enough"),
        "remove_job": lambda: client.remove_job(ids["job"]),
        "scan": lambda: client.scan(),
        "groups": lambda: client.groups(),
        "review_totals": lambda: client.review_totals(),
        "group": lambda: client.group(group),
        "write_note": lambda: client.write_note(group, "seen"),
        "count": lambda: client.count("retry", {"states": ("failed",)}),
        "order": lambda: client.order("retry", {"states": ("failed",), "task": "remind"}, rate=1.0),
        "acts": lambda: client.acts(),
        "act": lambda: client.act(ids["act"]),
        "cancel_act": lambda: client.cancel_act(ids["act"]),
        "retry_group": lambda: client.retry_group(group),
        "discard_group": lambda: client.discard_group(group),
        "canary": lambda: client.canary(group),
        "cancel": lambda: client.cancel(ids["item"]),
        "retry": lambda: client.retry(ids["item"]),
        "act_on": lambda: client.act_on("cancel", [ids["item"]]),
        "discard": lambda: client.discard(ids["other"]),
        "schedule": lambda: client.schedule("remind", "daily 10:00", "k", {"phone": "1"}),
        "schedules": lambda: client.schedules(),
        "schedule_story": lambda: client.schedule_story(ids["schedule"]),
        "change_schedule": lambda: client.change_schedule(ids["schedule"], rule="daily 11:00"),
        "act_on_schedules": lambda: client.act_on_schedules("pause", ids["schedule"]),
        "reactivate_all": lambda: client.reactivate_all(),
        "preview": lambda: client.preview("daily 09:00", "Europe/Zagreb", 2),
        "slots": lambda: client.slots(),
        "users": lambda: client.users(),
        "user": lambda: client.user("ana"),
        "create_user": lambda: client.create_user("ben"),
        "change_user": lambda: client.change_user("ben", disabled=True),
        "make_key": lambda: client.make_key("mine", user_id="ana"),
        "keys": lambda: client.keys(),
        "revoke_key": lambda: client.revoke_key(next(iter(client.keys())).id),
        "me": lambda: client.me(),
        "queues": lambda: client.queues(),
        "pause": lambda: client.pause("unheard"),
        "resume": lambda: client.resume("unheard"),
        "limits": lambda: client.limits(),
        "set_limit": lambda: client.set_limit("boeing", "3/1m"),
        "workers": lambda: client.workers(),
        "alerts": lambda: client.alerts(),
        "late": lambda: client.late(),
        "stuck": lambda: client.stuck(),
        "silence": lambda: client.silence(),
        "now": lambda: client.now(),
        "history": lambda: client.history(minutes=60),
        "audit": lambda: client.audit(most=3),
        "simulate": lambda: client.simulate("birthdays", days=0.5, parameters={"people": 5}, seed=1),
        "close": lambda: client.close(),
    }  # fmt: skip


def test_every_method_called_for_real_answers_what_the_client_declares(
    door: tuple[Duly, Client], tmp_path: Path
) -> None:
    app, client = door
    mended = client.create_job(BytesIO(CSV), "rows.csv")
    with app.worker():
        eventually(lambda: client.job(mended).queue_state == "DONE")
    ids = {**filled(app, tmp_path), "mended": mended}
    ids["other"] = failed(app)
    known = calls(app, client, ids)
    assert sorted(known) == METHODS
    wrong = []
    for name, call in known.items():
        hint = get_type_hints(getattr(Client, name))["return"]
        try:
            answer = call()
            if not fits(answer, hint):
                wrong.append(f"{name} answered {answer!r:.300}, not {hint}")
        except DulyError as error:
            wrong.append(f"{name} raised {error!r}")
    assert not wrong, "\n".join(wrong)


def failed(app: Duly) -> int:
    """Another item in review, of a group of its own."""
    now, store = app.clock.now(), app.internals.store
    app.task_named("other").options(tries=1).put(phone="3")
    (item,) = claim(store, share("other", limit=1), now=now + timedelta(seconds=5))
    settle(store, [item], Failed("KeyError", ("KeyError",)), now)
    return item.id


def test_a_repeated_key_has_no_second_effect_and_is_refused_for_another_request(door: tuple[Duly, Client]) -> None:
    app, client = door
    first, second = (client.put("remind", {"phone": "1"}, idempotency_key="once") for _ in range(2))
    assert (first, first.fresh, len(list(client.items()))) == (second, True, 1)
    with pytest.raises(InputError, match="Idempotency-Key: was already used for another request"):
        client.put("remind", {"phone": "2"}, idempotency_key="once")
    jobs = {client.create_job(BytesIO(CSV), "a.csv", idempotency_key="file") for _ in range(2)}
    assert len(jobs) == 1
    app.cancel(first.id)
    assert client.again(first.id, idempotency_key="more") == client.again(first.id, idempotency_key="more")
    for wrong in ("", "two words", "x" * 201):
        with pytest.raises(InputError, match="Idempotency-Key"):
            client.create_job(BytesIO(CSV), "a.csv", idempotency_key=wrong or " ")


def fits(answer: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Iterator:
        rows = list(answer)
        return not isinstance(answer, list) and bool(rows) and all(fits(each, inner[0]) for each in rows)
    if origin is list:
        return type(answer) is list and all(fits(each, inner[0]) for each in answer)
    if origin is UnionType:
        return any(fits(answer, each) for each in inner)
    if hint is type(None):
        return answer is None
    return type(answer) is (origin or hint)
