"""Shows the demo: a live screen on a terminal, a line per event elsewhere. It reads through `app.read` only.

What happened to items is found out by comparing them with the last look.
"""

from __future__ import annotations

import re
import sys
import threading
from base64 import b64decode
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import click
from msgspec import Struct
from rich.console import RenderableType
from rich.layout import Layout
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from duly.apps.demo.scenes import beside
from duly.cli import words
from duly.core.errors import DulyError
from duly.core.model import Tried
from duly.core.shown import JobRow, Row
from duly.facade.app import Duly
from duly.verbs import LOCAL
from duly.verbs.read import Read

if TYPE_CHECKING:
    from duly.engine.worker import Worker

EventKind = Literal["fired", "failed", "in review", "busy", "cancelled"]

_ANSWER = re.compile(r"answered (?P<status>\d+): .*\"message\": \"(?P<message>[^\"]*)\"")

LOOK = 500  # items per look; older ones have come to their end
# Tasks whose items are not shown one by one.
HIDDEN = ("duly.", "enrichment.", "catalog.", "birthday")
LOOK_EVERY = 0.25

MARKS = {
    "fired": ("✓", "green"),
    "failed": ("↻", "yellow"),
    "in review": ("✗", "red"),
    "busy": ("…", "cyan"),
    "cancelled": ("-", "dim"),
}


@contextmanager
def view(app: Duly, worker: Worker, step: Callable[[], None], probe_url: str | None) -> Iterator[None]:
    """Show what happens until the end of the block, and call `step` meanwhile."""
    shown = Screen(app, probe_url) if sys.stdout.isatty() else Lines(app, probe_url)

    def look(over: threading.Event) -> None:
        try:
            with shown:
                while not over.is_set():
                    step()
                    shown.update()
                    over.wait(LOOK_EVERY)
                shown.update()
        except (DulyError, OSError):  # the output was closed, or the database went away
            worker.stop()

    try:
        with beside(look, "duly-view"):
            yield
    finally:
        shown.conclude()


class Lines:
    """One line per event, for pipes and logs."""

    def __init__(self, app: Duly, probe_url: str | None) -> None:
        self.app = app
        self.log = EventLog(app.read)
        self.probe_url = probe_url
        self._last = ""

    def __enter__(self) -> Lines:
        click.echo(f"duly demo on {self.app.settings.database_url}")
        if self.probe_url:
            click.echo(f"metrics at {self.probe_url}/metrics")
        if not self.app.internals.companions:
            click.echo("no RabbitMQ within reach: name one in RABBITMQ_URL to see messages retried too")
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self) -> None:
        for event in self.log.look():
            detail = f" ({event.text})" if event.text else ""
            click.echo(
                f"{event.time.astimezone():%H:%M:%S} {event.kind:<9} {event.row.id:>4} {_title(event.row)}{detail}"
            )
        if (job := self.newest_job()) is not None and (text := _progress(job)) != self._last:
            self._last = text
            click.echo(f"{job.last_heartbeat.astimezone():%H:%M:%S} {text}")

    def newest_job(self) -> JobRow | None:
        return next(iter(self.app.internals.verbs.jobs.page(LOCAL, most=1)), None)

    def conclude(self) -> None:
        counts = self.log.counts()
        live = counts["waiting"] + counts["running"]
        click.echo(f"{counts['done']} fired, {counts['failed']} in review, {live} left")


class Screen(Lines):
    """The whole terminal: counts, what comes, what happened."""

    def __init__(self, app: Duly, probe_url: str | None) -> None:
        super().__init__(app, probe_url)
        self._events: deque[DemoEvent] = deque(maxlen=100)
        self._console = words.console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)

    def __enter__(self) -> Screen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self) -> None:
        self._events.extendleft(self.log.look())
        self._live.update(self.picture(self.app.clock.now()), refresh=True)

    def picture(self, now: datetime) -> RenderableType:
        width, height = self._console.size
        table = Padding(_upcoming(self.log.upcoming()[:height], now), (0, 2, 0, 0))
        upcoming, happened = Layout(table, ratio=2, minimum_size=3), Layout(_happened(list(self._events)), ratio=5)
        both = Layout()
        if width >= words.ROOMY:
            both.split_row(upcoming, happened)
        else:
            both.split_column(upcoming, happened)
        whole = Layout()
        whole.split_column(Layout(self._header(), size=4), both, Layout(self._footer(), size=2))
        return whole

    def _header(self) -> Text:
        header = Text(f"dashboard at {self.probe_url}\n" if self.probe_url else "\n", style="bold cyan", no_wrap=True)
        header.append("duly ", style="bold default")
        counts = self.log.counts()
        for state in ("waiting", "running", "done", "failed"):
            name = "in review" if state == "failed" else state
            header.append(f"   {counts[state]:>3}", style=f"bold {words.STYLES[state]}")
            header.append(f" {name}", style="not bold dim default")
        job = self.newest_job()
        return header.append("" if job is None else f"\n{_progress(job)}", style="not bold dim default")

    def _footer(self) -> Text:
        folder = self.app.settings.database_url
        metrics = f"{self.probe_url}/metrics   " if self.probe_url else ""
        lines = f"{metrics}Ctrl-C ends\nduly items --database-url {folder}"
        return Text(lines, style="dim", overflow="ellipsis", no_wrap=True)


class DemoEvent(Struct, frozen=True):
    time: datetime
    kind: EventKind
    row: Row
    text: str


class EventLog:
    def __init__(self, read: Read) -> None:
        self._read = read
        self._rows: dict[int, Row] = {}
        self._shown: Counter[int] = Counter()  # the number of attempts that were shown, by item

    def look(self) -> list[DemoEvent]:
        """What happened since the last look, in order."""
        events: list[DemoEvent] = []
        for row in reversed(self._read.page(most=LOOK)):
            if row.task.startswith(HIDDEN):
                continue
            before = self._rows.get(row.id)
            self._rows[row.id] = row
            if before is None or (before.fence, before.state, before.attempt) != (row.fence, row.state, row.attempt):
                events.extend(self._news(row))
        return sorted(events, key=lambda event: event.time)

    def counts(self) -> Counter[str]:
        return Counter(row.state for row in self._rows.values())

    def upcoming(self) -> list[Row]:
        return sorted((row for row in self._rows.values() if row.state == "waiting"), key=lambda row: row.due_at)

    def _news(self, row: Row) -> list[DemoEvent]:
        news = [self._failure(row, tried, is_last) for tried, is_last in self._new_tries(row)]
        if row.state == "done" and row.finished_at:
            news.append(DemoEvent(row.finished_at, "fired", row, _how(row)))
        elif row.state == "waiting" and row.outcome == "throttled" and row.started_at:
            wait = words.span((row.due_at - row.started_at).total_seconds())
            news.append(DemoEvent(row.started_at, "busy", row, f"asked to come again in {wait}"))
        elif row.state == "cancelled" and row.finished_at:
            news.append(DemoEvent(row.finished_at, "cancelled", row, row.last_error or ""))
        return news

    def _new_tries(self, row: Row) -> list[tuple[Tried, bool]]:
        if not row.failures + row.crashes + row.losses:
            return []
        tries = self._read.story(row.id).tries
        shown, self._shown[row.id] = self._shown[row.id], len(tries)
        return [(tried, place == len(tries) - 1) for place, tried in enumerate(tries)][shown:]

    def _failure(self, row: Row, tried: Tried, is_last: bool) -> DemoEvent:
        error = _reason(tried.error)
        if is_last and row.state == "failed":
            return DemoEvent(tried.ended_at, "in review", row, error)
        wait = words.span((row.due_at - tried.ended_at).total_seconds())
        again = f"retry in {wait}" if is_last and row.state == "waiting" else "retried"
        return DemoEvent(tried.ended_at, "failed", row, f"{again}: {error}")


def _how(row: Row) -> str:
    late = (row.started_at - row.due_at).total_seconds() if row.started_at else 0.0
    parts = [f"try {row.attempt}"] if row.attempt > 1 else []
    parts += [f"{words.span(late)} late"] if late >= 1 else []
    return ", ".join(parts)


def _reason(error: str | None) -> str:
    """The status and message of the provider, if the error has them; else the first line of the error."""
    line = words.cut(error, 500)
    match = _ANSWER.search(line)
    return f"{match['status']} {match['message']}" if match else line


def _upcoming(rows: list[Row], now: datetime) -> RenderableType:
    lines = []
    for row in rows:
        again = Text(f"try {row.attempt + 1}  ", style="yellow") if row.failures else Text()
        when = words.relative(row.due_at, now) if row.due_at > now else "now"
        lines.append((Text(when, style="cyan"), Text.assemble(again, _title(row))))
    table = words.table(">due", "upcoming", rows=lines or [("", Text("nothing waits", style="dim"))], last=True)
    table.columns[0].min_width = 8
    return table


def _happened(events: list[DemoEvent]) -> RenderableType:
    lines = []
    for event in events:
        mark, style = MARKS[event.kind]
        time = Text(f"{event.time.astimezone():%H:%M:%S}", style="dim")
        what = Text(words.cut(_title(event.row), 30))
        lines.append((time, Text(f"{mark} {event.kind}", style=style), what, Text(event.text, style="dim")))
    return words.table("time", "", "what happened", "", rows=lines, last=True)


def _title(row: Row) -> str:
    if "payload" in row.args:
        return f"order: {b64decode(row.args['payload']).decode(errors='replace')}"
    return f"{row.args['name']}: {row.args['message']}"


def _progress(job: JobRow) -> str:
    """How far the rows of a file are, in steps that can be followed."""
    if not job.is_complete:
        return f"job {job.id}: a file of products came in"
    step = max(job.total_items // 8, 1)
    ended = job.processed_items if job.queue_state == "DONE" else job.processed_items // step * step
    missing = f", {job.not_found_items} not found" if job.not_found_items else ""
    return f"job {job.id}: {ended} of {job.total_items} products looked up{missing}"
