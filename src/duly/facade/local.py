"""The database behind the same methods as `duly.client.Client`: `app.client`, and what commands work on.

The client declares the methods: their parameters, results and documentation. Here each is bound to the verb that does
the same, which is called as the local admin. A test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial, wraps
from hashlib import sha256
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TypeVar, Unpack, cast

from msgspec import convert
from msgspec.structs import asdict

from duly.core import codec, results, shown, wire
from duly.core.errors import DulyError, InputError
from duly.core.filters import ItemFilter, ItemOptions, ReprocessOptions, check_names, checked_most, first
from duly.core.model import Placed
from duly.tasks.checks import checked_text
from duly.tasks.signature import signature
from duly.verbs import LOCAL, SCOPES, Principal
from duly.verbs.acts import shown as act_shown
from duly.verbs.job_rows import START
from duly.verbs.timetable import rule_or_slots, rule_preview

if TYPE_CHECKING:
    from duly.core.filters import ActOptions
    from duly.core.model import Status
    from duly.facade.app import Duly
    from duly.tasks.puttable import Options
    from duly.verbs import Verbs
    from duly.verbs.listing import Filter
    from duly.verbs.read import Read

T = TypeVar("T")

IDEMPOTENCY_KEY = "Idempotency-Key"  # its name in errors, as those of the service call it
PAGE = 500  # rows that are read at a time


def verb(find: Callable[[Verbs], Callable[..., Any]], show: Callable[[Any], Any] | None = None) -> Any:
    """A method that calls this verb as `who`. `show` converts its result."""

    def bound(local: Local) -> Callable[..., Any]:
        call = partial(find(local.verbs), local.who)
        if show is None:
            return call

        @wraps(call)
        def shown(*args: Any, **options: Any) -> Any:
            return show(call(*args, **options))

        return shown

    return property(bound)


def read(find: Callable[[Read], Callable[..., Any]]) -> Any:
    """A method that only reads, without a check of permissions."""
    return property(lambda local: find(local.app.read))


class Local(AbstractContextManager["Local"]):
    def __init__(self, app: Duly, who: Principal = LOCAL) -> None:
        self.app = app
        self.verbs: Verbs = app.internals.verbs
        self.who = who

    @property
    def http(self) -> NoReturn:
        raise DulyError("app.client has no connection to a service: call other routes with duly.client.Client(url)")

    def close(self) -> None:
        """Nothing is held here: the app keeps its database until it is closed itself."""

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- items

    item = verb(lambda verbs: verbs.items.find)
    story = read(lambda read: read.story)
    cancel = verb(lambda verbs: verbs.items.cancel)
    retry = verb(lambda verbs: verbs.items.retry)
    discard = verb(lambda verbs: verbs.items.discard)
    edit = verb(lambda verbs: verbs.items.edit)

    def put(
        self, task: str, args: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None, **given: Any
    ) -> Placed[Any]:
        check_names(given, ItemOptions, "put")
        trace, options = self.app.internals.telemetry.traceparent(), cast("Options", given)
        new = self.app.task_named(task).make_item(dict(args or {}), options, trace)
        return self._once(idempotency_key, [task, args, given], lambda on: self.verbs.items.put(self.who, new, on))

    def again(self, item_id: int, *, idempotency_key: str | None = None, **given: Any) -> Placed[Any]:
        again = partial(self.verbs.items.again, self.who, item_id, trace=self.app.internals.telemetry.traceparent())
        return self._once(idempotency_key, [item_id, given], lambda on: again(**given, connection=on))

    def _once(self, key: str | None, request: list[Any], put: Callable[[Any], Placed[Any]]) -> Placed[Any]:
        """Put once per key, as the service does: a repetition returns the first answer."""
        endings, service = self.app.internals.endings, self.verbs.service
        if key is None:
            return put(None).awaited_by(endings)
        digest = sha256(codec.encode(request)).hexdigest()
        named = (self.who.user_id, _checked_key(key))
        with self.app.internals.store.transaction() as connection:
            if service.begin_reply(*named, digest, connection):
                placed = put(connection)
                service.end_reply(*named, 201, codec.text(wire.written(asdict(placed))), connection)
                return placed.awaited_by(endings)
        known = service.reply(*named)
        if known is None or known.request != digest:
            raise InputError(IDEMPOTENCY_KEY, "was already used for another request")
        return wire.read(Placed[Any], codec.decode(known.answer)).awaited_by(endings)

    def tasks(self) -> Iterator[results.Signature]:
        known = sorted(self.app.tasks.items())
        return (signature(task) for _, task in known if not task.is_internal)

    def act_on(self, action: Any, ids: Sequence[int], reason: str = "", skip: bool = False) -> list[int]:
        return self.verbs.items.act(self.who, action, ids, reason=reason, skip=skip)

    def retask(self, old: str, new: str, *, skip: bool = False) -> results.Retasked:
        done = self.verbs.tasks.retask(self.who, old, new, skip=skip)
        while done.is_more:  # in portions, so that a long one can be interrupted and repeated; all of it was checked
            done = done.plus(self.verbs.tasks.retask(self.who, old, new, skip=True))
        return done

    def items(self, *, most: int | None = None, **filter: Any) -> Iterator[shown.Row]:
        return first((row for page in self._pages(PAGE, filter) for row in page.rows), most)

    def find_items(self, most: int, **filter: Any) -> shown.ItemsFound:
        rows: list[shown.Row] = []
        scanned = 0
        for page in self._pages(checked_most(most), filter):
            rows += page.rows
            scanned += page.scanned
            if len(rows) >= most:
                break
        return shown.ItemsFound(rows[:most], None, scanned, page.is_indexed)

    def item_counts(self, **filter: Any) -> shown.StateCounts:
        fits, owner = _item_filter(filter)
        return self.verbs.listing.counts(self.who, fits, owner=owner)

    def _pages(self, size: int, filter: Mapping[str, Any]) -> Iterator[shown.ItemsFound]:
        fits, owner = _item_filter(filter)
        after = None
        while True:
            yield (page := self.verbs.listing.page(self.who, fits, owner=owner, after=after, most=size))
            if (after := page.place) is None:
                return

    # -- jobs

    job = verb(lambda verbs: verbs.jobs.show)
    pause_job = verb(lambda verbs: verbs.jobs.pause)
    resume_job = verb(lambda verbs: verbs.jobs.resume)
    cancel_job = verb(lambda verbs: verbs.jobs.cancel)
    remove_job = verb(lambda verbs: verbs.jobs.remove)
    check_job = verb(lambda verbs: verbs.job_checks.check)

    def scan(self, again: bool = False) -> results.ScanReport:
        return self.app.internals.intake.scanner.scan(self.who, again)

    def kick_off_job(self, job_id: int, seconds: float = 5.0) -> results.Kickoff:
        return self.app.internals.kickoffs.run(self.who, job_id, seconds)

    def create_job(self, file: BinaryIO, name: str, *, idempotency_key: str | None = None, **options: Any) -> int:
        from duly.intake.intake import PORTION, kept_by

        key = None if idempotency_key is None else f"upload:{_checked_key(idempotency_key)}"
        file.seek(0)  # a call that is repeated sends the same file
        with self.app.internals.intake.receive() as writer:
            while portion := file.read(PORTION):
                writer.write(portion)
        kept = kept_by(writer)
        return self.app.internals.intake.create(self.who, kept, name, **_file_options(options), key=key).id

    def fetch_job(self, source: str, **options: Any) -> int:
        return self.app.internals.intake.order(self.who, source, **_file_options(options)).id

    def job_types(self) -> Iterator[results.JobTypeInfo]:
        return (each.info() for _, each in sorted(self.app.internals.job_types.items()))

    def preview_job(self, file: BinaryIO, name: str, **options: Any) -> results.FilePreview:
        return self.app.internals.intake.preview(self.who, file, name, **_file_options(options))

    def jobs(
        self, *, job_type: str | None = None, user_id: str | None = None, most: int | None = None
    ) -> Iterator[shown.JobRow]:
        return _walk(most, partial(self.verbs.jobs.page, self.who, user_id, job_type))

    def job_items(
        self, job_id: int, *, statuses: Sequence[Status] = (), most: int | None = None
    ) -> Iterator[shown.JobItem]:
        rows = self.verbs.job_rows
        if statuses:
            return _walk(most, partial(rows.page, self.who, job_id, statuses), START, _changed)
        return _walk(most, partial(rows.by_number, self.who, job_id), 0, lambda row: row.row_no)

    def pending(
        self, *, statuses: Sequence[Status] = (), user_id: str | None = None, most: int | None = None, **filter: Any
    ) -> Iterator[shown.JobItem]:
        rows, filter["owner"] = self.verbs.job_rows, user_id
        page = partial(rows.pending, self.who, statuses or ("PENDING", "PROCESSING"), **filter)
        return _walk(most, lambda after, n: page(after=after, most=n), START, _changed)

    job_counts = verb(lambda verbs: verbs.job_rows.counts_of)

    def pending_counts(self, *, user_id: str | None = None, **filter: Any) -> shown.RowCounts:
        return self.verbs.job_rows.counts(self.who, owner=user_id, **filter)

    def reprocess_job(self, job_id: int, **options: Unpack[ReprocessOptions]) -> int:
        check_names(options, ReprocessOptions, "reprocess_job")
        given: dict[str, Any] = {"ids": options.get("item_ids"), "is_reset": options.get("reset", False)}
        if "statuses" in options:
            given["statuses"] = options["statuses"]
        return self.verbs.jobs.reprocess(self.who, job_id, **given)

    def export_job(self, job_id: int, out: BinaryIO, format: str = "xlsx") -> None:
        out.writelines(self.app.internals.exports.whole(self.who, job_id, format))

    def export_rejects(self, job_id: int, out: BinaryIO, format: str = "xlsx") -> None:
        out.writelines(self.app.internals.exports.rejects(self.who, job_id, format))

    def mend_job(self, job_id: int, file: BinaryIO, name: str) -> results.MendReport:
        from duly.intake.mending import mend

        return mend(self.app.internals.intake, self.who, job_id, file, name)

    def refused_row(self, job_id: int, row: int) -> results.RowInError:
        from duly.intake.mending import refused

        return refused(self.app.internals.intake, self.who, job_id, row)

    def mend_row(self, job_id: int, row: int, values: Mapping[str, Any]) -> None:
        from duly.intake.mending import mend_row

        mend_row(self.app.internals.intake, self.who, job_id, row, values)

    # -- review, and acts on many items

    group = verb(lambda verbs: verbs.review.story)
    write_note = verb(lambda verbs: verbs.review.write_note)
    canary = verb(lambda verbs: verbs.review.canary)
    retry_group = verb(lambda verbs: verbs.review.retry, act_shown)
    discard_group = verb(lambda verbs: verbs.review.discard, act_shown)
    act = verb(lambda verbs: verbs.acts.get, act_shown)
    cancel_act = verb(lambda verbs: verbs.acts.cancel, act_shown)

    def review_totals(self, user_id: str | None = None) -> shown.ReviewTotals:
        return self.verbs.review.totals(self.who, user_id)

    def groups(self, *, user_id: str | None = None, most: int | None = None) -> Iterator[shown.ShownGroup]:
        page = partial(self.verbs.review.groups, self.who, user_id)
        return _walk(most, lambda after, n: page(n, after), None, lambda group: (group.items, group.id))

    def count(self, action: str, filter: ActOptions) -> int:
        return self.verbs.acts.count(self.who, cast("shown.Action", action), _act_filter(filter)).items

    def order(self, action: Any, filter: ActOptions, **options: Any) -> shown.ShownAct:
        return act_shown(self.verbs.acts.order(self.who, action, _act_filter(filter), **options))

    def acts(self, *, user_id: str | None = None, most: int | None = None) -> Iterator[shown.ShownAct]:
        return map(act_shown, _walk(most, partial(self.verbs.acts.page, self.who, user_id)))

    # -- schedules

    slots = property(lambda local: local.verbs.schedules.slots)

    def schedule(
        self, task: str, rule: str, key: str, args: Mapping[str, Any] | None = None, **options: Any
    ) -> shown.ShownSchedule:
        schedules = self.verbs.schedules
        made = schedules.create(self.who, task, rule_or_slots(rule), args or {}, key=key, **_given(options))
        return schedules.shown(made)

    def schedules(self, *, after: int = 0, most: int | None = None, **filter: Any) -> Iterator[shown.ShownSchedule]:
        schedules = self.verbs.schedules
        return map(schedules.shown, _walk(most, lambda after, n: schedules.page(**filter, after=after, most=n), after))

    def schedule_story(self, schedule_id: int, ahead: int = 5) -> shown.ScheduleStory:
        schedules = self.verbs.schedules
        return schedules.story(schedules.reached(self.who, schedule_id), ahead)

    def change_schedule(self, schedule_id: int, **fields: Any) -> shown.ShownSchedule:
        schedules = self.verbs.schedules
        return schedules.shown(schedules.change(self.who, schedule_id, **_given(fields)))

    def act_on_schedules(self, action: results.ScheduleAction, *ids: int, skip: bool = False) -> list[int]:
        return self.verbs.schedules.act(self.who, action, ids, skip=skip)

    def reactivate_all(self, *, task: str | None = None, cause: str | None = None, run: bool = False) -> int:
        count, is_more = 0, True
        while is_more:  # in portions, so that a long one can be interrupted and repeated
            done, is_more = self.verbs.schedules.reactivate_all(self.who, task, cause=cause, run_now=run)
            count += done
        return count

    def preview(self, rule: str, zone: str = "UTC", n: int = 5) -> results.RulePreview:
        if not 1 <= n <= 100:
            raise InputError("n", f"must be between 1 and 100, got {n}")
        return rule_preview(rule, zone, self.app.clock.now(), n)

    # -- users and keys

    user = verb(lambda verbs: verbs.users.get)
    create_user = verb(lambda verbs: verbs.users.create)
    revoke_key = verb(lambda verbs: verbs.users.revoke_key)

    def users(self) -> Iterator[shown.User]:
        return _walk(None, partial(self.verbs.users.page, self.who), "")

    def change_user(self, user_id: str, *, disabled: bool | None = None, **fields: Any) -> shown.User:
        return self.verbs.users.change(self.who, user_id, is_disabled=disabled, **fields)

    def keys(self, user_id: str | None = None) -> Iterator[shown.KeyInfo]:
        return _walk(None, partial(self.verbs.users.keys, self.who, user_id), "")

    def make_key(
        self, name: str, *, user_id: str | None = None, scopes: Sequence[str] = ("read", "write"), **options: Any
    ) -> shown.NewKey:
        if user_id is None:
            raise InputError("user_id", "is required: the local admin needs no key")
        made, secret = self.verbs.users.make_key(self.who, user_id, name, tuple(scopes), **options)
        return shown.NewKey(**asdict(made), secret=secret)

    def me(self) -> results.Me:
        scopes = [scope for scope in SCOPES if self.who.may(scope)]
        return results.Me(self.who.user_id, self.who.role, scopes, self.who.via)

    # -- queues, limits and what happens

    pause = verb(lambda verbs: verbs.queues.pause)
    resume = verb(lambda verbs: verbs.queues.resume)
    limits = read(lambda read: read.limits)
    set_limit = verb(lambda verbs: verbs.queues.set_limit)
    workers = read(lambda read: lambda: iter(read.workers()))
    alerts = read(lambda read: read.alerts)
    late = read(lambda read: read.late)
    stuck = read(lambda read: read.stuck)
    silence = read(lambda read: read.silence)
    now = verb(lambda verbs: verbs.now.look)

    def queues(self) -> list[shown.QueueDepth]:
        return convert(self.app.read.queues(), list[shown.QueueDepth])

    def history(self, *, job: int | None = None, **options: Any) -> shown.Chart:
        return self.verbs.history.look(self.who, job_id=job, **options)

    def audit(self, subject: str | None = None, *, most: int | None = None) -> Iterator[shown.AuditLine]:
        return _walk(most, partial(self.verbs.audit.page, subject))

    def simulate(self, app: str, **asked: Any) -> results.SimulatedDays:
        from duly.facade.simulated import simulated

        return simulated(app, **_given(asked))


def _walk(
    most: int | None,
    page: Callable[[Any, int], Sequence[T]],
    after: Any = None,
    place: Callable[[Any], Any] = lambda row: row.id,
) -> Iterator[T]:
    """The rows of a list, at most `most`, read page by page. `page` gets the place of the last row, and how many."""

    def rows(after: Any) -> Iterator[T]:
        size = min(most or PAGE, PAGE)
        while found := page(after, size):
            yield from found
            if len(found) < size:
                return
            after = place(found[-1])

    return first(rows(after), most)


def _checked_key(key: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]{1,200}", key):
        raise InputError(IDEMPOTENCY_KEY, "must be 1 to 200 printable characters without spaces")
    return key


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _item_filter(filter: Mapping[str, Any]) -> tuple[Filter, str | None]:
    """A filter of items, and the owner whose items they are."""
    from duly.verbs.listing import Filter

    check_names(filter, ItemFilter, "items")
    given = _act_filter(filter)
    owner = given.pop("user_id", None)
    return Filter(**given), owner if owner is None else checked_text("user_id", owner, 200)


def _changed(row: shown.JobItem) -> tuple[datetime, int]:
    """The place of a row in the order in which rows change."""
    return row.changed_at, row.id


def _act_filter(filter: Mapping[str, Any]) -> dict[str, Any]:
    """The filter that a verb takes: states as text, of which an empty one means none."""
    values = _given(filter)
    states = {"state": ",".join(map(str, values.pop("states")))} if "states" in values else {}
    where = {"where": tuple(values.pop("where")) or None} if "where" in values else {}
    return {**values, **states, **where}


def _file_options(values: dict[str, Any]) -> dict[str, Any]:
    from duly.intake.intake import FileOptions

    return {"job_type": values.pop("job_type", "csv"), "file_options": convert(values, FileOptions)}
