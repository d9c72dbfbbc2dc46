"""A world to look at: an app with the built-in apps on it, the providers that they call, and rows in every state.

    with World(url, folder) as world:
        world.fill()                       # everything below, with a day of history that ends now
        with world.past(hours=2) as time:  # or only what a test is about, in virtual time
            world.app.put("echo", text="broken: no such table")
            time.run()
        with world.working():              # a real worker until the end of the block
            …

The app lives in real time, for a browser does. History is made by setting the app's clock back for the length of a
block, in which the engine runs in virtual time: quick, and the same every time.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from duly import Backoff, Duly, GiveUp, Limit
from duly.apps.birthdays import birthdays_on
from duly.apps.catalog import catalog_on
from duly.apps.deliver import http_on
from duly.apps.enrichment import enrichment_on
from duly.apps.messages import message_retry_on
from duly.apps.reminders import reminders_on
from duly.core.clock import ManualClock
from duly.core.errors import InputError
from duly.core.model import Item, Job, Outcome
from duly.intake.intake import kept_by
from duly.testing import World as Time
from duly.verbs import LOCAL, Principal
from tests.apps.catalog_api import CatalogApi
from tests.apps.enrichment.conftest import POT, Shop, told
from tests.outbound.provider import Answer as Reply
from tests.outbound.provider import Provider, Request, answer
from tests.support import claim, settle, share

PASSWORD = "correct horse battery staple"
PEOPLE = ("ana", "bob")  # users; `root` is the admin
LEASE = timedelta(hours=6)  # of what another worker seems to run
HISTORY = timedelta(hours=26)  # how far back the rows of `fill` go

TEXTS = "text,note\n" + "".join(f"line {n},\n" for n in range(1, 31)) + "broken: no such shelf,\nlast line,\n"
PRODUCTS = (
    "title,brand,sku,price\n"
    'Tea pot,Acme,TP-7,"19,90"\n'
    "Kettle,Acme,KE-2,34.00\n"
    "Unknown thing,Nobody,NO-1,1.00\n"
    ",,,\n"
    "Cup,Acme,CU-1,not a price\n"
)
STOCK = "sku,count\nTP-7,3\nKE-2,-1\nCU-1,many\nCU-2,12\n"  # two rows are refused


class Phones(Provider):
    """Takes every call, except those to numbers that it was told about."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: dict[str, int] = {}  # what is answered, by a part of the number

    def accept(self, request: Request) -> Reply:
        reply = super().accept(request)
        text = json.dumps(request.body).replace(" ", "")
        return next((answer(status) for number, status in self.statuses.items() if number in text), reply)


class World:
    """An app on a migrated database, and those it calls."""

    def __init__(self, database_url: str, folder: Path, **settings: Any) -> None:
        self._stack = ExitStack()
        folder.mkdir(parents=True, exist_ok=True)
        self.phones = Phones()
        self.supplier = CatalogApi()
        self.shop = Shop()
        given = {
            "pending_enabled": True,
            "files_url": str(folder / "files"),
            "vapi_base_url": self.phones.url,
            "vapi_api_key": "sk-live-phones",
            "catalog_base_url": self.supplier.url,
            "catalog_calls_per_minute": 600,
            "catalog_max_consecutive_failures": 1,  # a product is tried once in any 24 hours
            "enrichment_base_url": self.shop.url,
            "enrichment_api_key": "sk-live-shop",
            **settings,
        }
        self.app = Duly(database_url, **given)
        self.reminders = reminders_on(self.app)
        self.messages = message_retry_on(self.app)
        self.catalog = catalog_on(self.app)
        self.birthdays = birthdays_on(self.app)
        http_on(self.app)
        self.enrichment = enrichment_on(self.app)
        _tasks_on(self.app)

    def __enter__(self) -> World:
        with self._stack as stack:
            for provider in (self.phones, self.supplier, self.shop):
                stack.enter_context(provider)
            stack.callback(self.app.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- time

    @contextmanager
    def past(self, back: timedelta = timedelta(0), **parts: float) -> Iterator[Time]:
        """Virtual time from so long ago until now, for the length of the block; what falls due on the way is run."""
        now = self.app.clock.now()
        before, clock = self.app.internals.database._clock, ManualClock(now - back - timedelta(**parts))
        self.app.internals.database._clock = clock
        runner = asyncio.Runner()
        try:
            time = Time(self.app, clock, runner)
            yield time
            if clock.now() < now:
                time.run_until(now)
        finally:
            self.app.internals.database._clock = before
            _aside(runner.close)

    def work(self) -> int:
        """Run what is due now, without a worker; returns the number of attempts."""
        with self.past() as time:
            return time.run()

    @contextmanager
    def working(self) -> Iterator[Any]:
        """A real worker until the end of the block, for every task that needs no broker."""
        worker = self.app.worker([name for name in self.app.tasks if name != "message_retry"])
        worker.start()
        try:
            yield worker
        finally:
            worker.stop()
            worker.drain()

    # -- what there is to see

    def someone(self, name: str) -> Principal:
        """A user as verbs know them."""
        return Principal(name, "user", frozenset(("read", "write")), "session")

    def add_users(self) -> None:
        """Ana and Bob, who see their own rows, and root, who sees all; each can sign in with PASSWORD."""
        for name in PEOPLE:
            self.app.internals.verbs.users.create(LOCAL, name, password=PASSWORD)
        self.app.internals.verbs.users.create(LOCAL, "root", "admin", PASSWORD)

    def send(self, content: str, name: str = "texts.csv", job_type: str = "texts", who: Principal = LOCAL) -> Job:
        """A file as a job; its rows are worked off when there is a worker, or in `past`."""
        with self.app.internals.intake.receive() as writer:
            writer.write(content.encode())
        return self.app.internals.intake.create(who, kept_by(writer), name, job_type=job_type)

    def run_elsewhere(self, task: str, count: int = 1) -> list[Item]:
        """Have due items of a task be run by another worker, for hours."""
        now = self.app.clock.now()
        return claim(self.app.internals.store, share(task, limit=count), worker="elsewhere", now=now, lease=LEASE)

    def give_up(self, item_ids: list[int], task: str, problem: str) -> None:
        """Put due items of a task into review without calling its handler."""
        self.end(item_ids, task, GiveUp(problem))

    def end(self, item_ids: list[int], task: str, outcome: Outcome, queue: str | None = None) -> None:
        """Have due items of a task end like this, without calling its handler."""
        now = self.app.clock.now()
        found = claim(
            self.app.internals.store, share(queue or task, task=task), worker="elsewhere", now=now, lease=LEASE
        )
        assert {item.id for item in found} == set(item_ids), "only these are due there"
        settle(self.app.internals.store, found, outcome, now)

    def fill(self) -> None:
        """Rows of every kind and in every state, the same each time."""
        with self.past(HISTORY) as time:
            start, end = time.clock.now(), time.clock.now() + HISTORY
            self.fill_schedules()
            self.fill_reminders(end)
            self.fill_people()
            self.fill_products()
            self.fill_messages(end)
            self.fill_items(start)
            time.run_until(end - timedelta(minutes=30))
            self.fill_jobs()
        self.fill_present()

    def fill_items(self, start: datetime) -> None:
        """Items of a day, among them three groups of failures."""
        for hour in range(24):
            at = start + timedelta(hours=hour, minutes=7)
            for n in range(1 + hour % 3):
                self.app.task_named("echo").at(at).put(text=f"parcel {hour}-{n}")
            if hour % 5 == 0:
                self.app.task_named("echo").at(at).put(text="broken: no such shelf")
            if hour % 8 == 0:
                self.app.task_named("echo").at(at).put(text="broken: the printer is out of paper")
            if hour % 6 == 0:
                self.app.task_named("print_label").at(at).put(parcel=f"P-{hour:04}", copies=2)
        self.app.task_named("print_label").at(start + HISTORY - timedelta(minutes=1)).put(
            parcel="P-8888"
        )  # is tried again later

    def fill_for(self, name: str) -> None:
        """A few rows of one user's own: done, in review, waiting, a schedule and a job."""
        who = self.someone(name)
        echo = self.app.task_named("echo")
        now = self.app.clock.now()
        tomorrow, rule = now + timedelta(days=1), f"daily {now + timedelta(hours=12):%H:%M}"  # not due here at any hour
        with self.past(hours=2):
            for text, at in (("parcel", None), ("letter", tomorrow)):
                self.app.internals.verbs.items.put(
                    who, echo.make_item({"text": f"{name}'s {text}"}, {"at": at}, owner=who.owner)
                )
            self.app.internals.verbs.items.put(
                who, echo.make_item({"text": f"broken: {name}'s shelf"}, {}, owner=who.owner)
            )
            self.app.internals.verbs.schedules.create(
                who, "echo", rule, {"text": "good morning"}, key=f"{name}'s morning"
            )
            self.send(f"text\n{name}'s row\n", f"{name}.csv", who=who)

    def fill_schedules(self) -> None:
        """Schedules that are active in several zones, one that is paused, and one that failed too often."""
        schedules = self.app.schedules
        schedules.create("echo", "daily 02:30", {"text": "report"}, key="morning report", zone="Europe/Zagreb")
        schedules.create("echo", "0 9 * * 1-5", {"text": "stand-up"}, key="stand-up", zone="America/New_York")
        schedules.create("echo", "every 15m", {"text": "still here"}, key="heartbeat")
        schedules.pause(schedules.create("echo", "daily 18:00", {"text": "good night"}, key="closing time").id)
        schedules.create("fragile", "every 10m", {"source": "feed"}, key="fragile feed")

    def fill_reminders(self, end: datetime) -> None:
        """Reminders that were called, refused, are tried again, and wait."""
        self.phones.statuses |= {"+3851400": 400, "+3851503": 503}
        for number, text, minutes in (
            ("+385 1 234", "Take the blue pill", -50),
            ("+385 1 400", "This number does not exist", -40),
            ("+385 1 503", "The provider is away", -0.5),
            ("+385 1 235", "Water the tomatoes", 200),
            ("+385 1 236", "Train to Zagreb leaves", 2_000),
        ):
            self.reminders.schedule(number, text, at=end + timedelta(minutes=minutes))

    def fill_people(self) -> None:
        for person_id, first, last, birthday, zone in (
            ("ada", "Ada", "Lovelace", "1815-12-10", "Europe/London"),
            ("grace", "Grace", "Hopper", "1906-12-09", "America/New_York"),
            ("leap", "Leap", "Horvat", "2000-02-29", "Europe/Zagreb"),
            ("mika", "Mika", "Tanaka", "03-15", "Asia/Tokyo"),
        ):
            self.birthdays.add(person_id, first, last, birthday, zone)

    def fill_products(self) -> None:
        """Products of two shops; the supplier does not know two of them, so they are deactivated in time."""
        self.supplier.missing |= {"BOX-3", "BOX-7"}
        self.catalog.publish_many([{"user_id": "ana", "sku": f"BOX-{n}"} for n in range(12)])
        self.catalog.publish_many([{"user_id": "bob", "sku": f"JAR-{n}"} for n in range(6)])

    def fill_messages(self, end: datetime) -> None:
        """Messages that wait, and two that were given up."""
        for n in range(4):
            self.app.task_named("message_retry").at(end + timedelta(hours=20, minutes=n)).put(**message(n, "orders"))
        lost = [self.app.put("message_retry", **message(n, "invoices")).id for n in (10, 11)]
        self.give_up(lost, "message_retry", "used up its 3 retries")

    def fill_jobs(self) -> None:
        """A job with a row in error, one with rows of every status, one of Ana's, and one that is paused."""
        self.shop.has[("TP-7", "")] = told(POT)
        self.send(TEXTS)
        self.send(PRODUCTS, "products.csv", "csv")
        self.send(STOCK, "stock.csv", "stock")
        self.app.job("echo", [{"text": f"letter {n}"} for n in range(20)], owner="ana")
        held = self.app.job("echo", [{"text": f"held back {n}"} for n in range(40)])
        self.app.internals.verbs.jobs.pause(LOCAL, held.id)

    def fill_present(self) -> None:
        """What goes on now: items that run elsewhere, that wait, that are late, a paused queue."""
        now = self.app.clock.now()
        for n in range(3):
            self.app.put("slow", n=n)
        self.run_elsewhere("slow", 2)
        for n in range(8):
            self.app.task_named("echo").options(key=f"tomorrow-{n}", at=now + timedelta(hours=12, minutes=n)).put(
                text=f"tomorrow {n}"
            )
        self.app.cancel(
            self.app.task_named("echo").at(now + timedelta(hours=3)).put(text="never mind").id, reason="not needed"
        )
        self.app.pause("print_label")
        self.app.put("print_label", parcel="P-9999", copies=1)


def message(n: int, queue: str) -> dict[str, Any]:
    """The arguments of a message that came from a broker."""
    payload = json.dumps({"order": 1_000 + n, "total": "19.90"}).encode()
    return {"payload": b64encode(payload).decode(), "queue": queue, "message_id": f"m-{n}"}


def _tasks_on(app: Duly) -> None:
    """Tasks of a made-up warehouse."""

    @app.task(retry=Backoff(base=60, tries=2))
    def echo(text: str, note: str = "", password: str = "") -> dict[str, str]:
        """Say it again. What begins with `broken` is given up."""
        if text.startswith("broken"):
            raise GiveUp(text)
        return {"text": text, "password": password}

    @app.task(retry=Backoff(base=600, tries=4), limits=Limit("printer", 2))
    def print_label(parcel: str, copies: int = 1, urgent: bool = False) -> None:
        """Print the label of a parcel; the first printer is always jammed."""
        raise OSError(f"paper jam while printing {parcel}")

    @app.task
    def slow(n: int) -> None:
        """Takes as long as it takes."""

    @app.task(retry=Backoff(base=1, tries=1), breaker=3)
    def fragile(source: str) -> None:
        """Fails each time, until its schedule is deactivated."""
        raise ConnectionError(f"{source} does not answer")

    @app.task(check=_checked_stock)
    def stock(sku: str, count: str) -> dict[str, int]:
        """Count what is on a shelf."""
        return {"count": int(count)}

    app.job_type("texts", echo)
    app.job_type("stock", stock)


def _checked_stock(args: dict[str, Any]) -> None:
    if not args["count"].isdecimal():
        raise InputError("count", "must be a number, 0 or more")


def _aside(act: Callable[[], None]) -> None:
    """Do this in another thread, because an event loop of Playwright runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(act).result()
