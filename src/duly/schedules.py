"""Schedules as rows: created, changed, paused, run now, removed while everything runs; and those declared in code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from duly import advance, codec
from duly.errors import InputError, ItemNotFound
from duly.model import CatchUp, Item, NewSchedule, Overlap, Revision, Schedule
from duly.policy.recur import Rule, Slot, Slots, parse, preview, zone_named
from duly.shown import AuditLine, Occurrence
from duly.task import checked_key, checked_lateness, checked_rank

if TYPE_CHECKING:
    from duly.app import Duly
    from duly.task import Task

OPTIONS = ("zone", "catch_up", "max_lateness", "overlap", "rank")
PORTION = 1_000
LOCAL = "local"

Status = Literal["active", "paused", "broken"]


class Declaration(Struct, frozen=True):
    """A schedule that code declares, as it will be written when the app starts."""

    new: NewSchedule


class SlotLoad(Struct, frozen=True):
    ring: str
    slot: int
    members: int


class Move(Struct, frozen=True):
    """A member that a rebalance would seat elsewhere."""

    schedule_id: int
    key: str
    slot: int
    to: int


class Schedules:
    def __init__(self, app: Duly) -> None:
        self._app = app
        self._declared: dict[tuple[str, str], Declaration] = {}
        self._is_reconciled = False

    # -- in

    def create(
        self,
        task: str | Task[..., Any],
        rule: Rule | Slots | str,
        *,
        key: str,
        for_owner: str | None = None,
        actor: str = LOCAL,
        connection: Any = None,
        **options: Any,
    ) -> Schedule:
        """A schedule under this key, created or, if it is there already, changed to what is said here."""
        new = self._new(self._task(task), rule, checked_key(key), options)
        return self._write(replace(new, owner=for_owner), actor, connection)

    def create_many(
        self,
        task: str | Task[..., Any],
        rule: Any,
        rows: Iterable[Mapping[str, Any]],
        for_owner: str | None = None,
        connection: Any = None,
    ) -> int:
        """Any number at once, each row with its key, arguments and options (also a rule of its own).

        Keys that exist are left as they are; returns how many are new.
        """
        of = self._task(task)
        news = (self._new(of, row.get("rule", rule), checked_key(row.get("key")), _without(row)) for row in rows)
        fresh = 0
        while portion := list(islice(news, PORTION)):
            self._check_ring(portion[0])
            now = self._app.clock.now()
            planned = [replace(_planned(new, now), owner=for_owner) for new in portion]
            fresh += sum(is_new for _, is_new in self._app.store.enroll(planned, self._seat, connection))
        return fresh

    def declare(self, task: Task[..., Any], rule: Rule | Slots | str, key: str | None, options: Any) -> Declaration:
        """Remember it until the app starts; at once when it has."""
        if key is None:
            # One task may have several: by rule and arguments, so that each keeps its history while it stays the same.
            options = dict(options)
            args = {name: value for name, value in options.items() if name not in OPTIONS}
            said = {name: options[name] for name in OPTIONS if options.get(name) is not None}
            key = " ".join(f"declared {rule} {said or ''} {args or ''}".split())
            key = key if len(key) <= 200 else f"{key[:160]} {sha256(key.encode()).hexdigest()[:32]}"
            declaration = Declaration(self._new(task, rule, checked_key(key), options, is_declared=True))
            if (task.name, key) in self._declared:
                raise InputError("rule", f"{task.name} has this schedule already: give one of them a key")
        else:
            declaration = Declaration(self._new(task, rule, checked_key(key), options))
        self._declared[task.name, declaration.new.key] = declaration
        if self._is_reconciled:
            self._write(declaration.new)
        return declaration

    def reconcile(self) -> None:
        """Make the rows what the code says. Those that it declared once and no longer does are removed."""
        for declaration in list(self._declared.values()):
            self._write(declaration.new)
        self._is_reconciled = True
        for schedule_id, task, key in self._app.store.read("declared", {}):
            if task in self._app.tasks and (task, key) not in self._declared:
                with suppress(ItemNotFound):  # another worker starts at the same time
                    self.remove(schedule_id, actor="code")

    def _task(self, task: str | Task[..., Any]) -> Task[..., Any]:
        return self._app.task_named(task) if isinstance(task, str) else task

    def _new(
        self, task: Task[..., Any], rule: Any, key: str, options: Mapping[str, Any], is_declared: bool = False
    ) -> NewSchedule:
        given = dict(options)
        said = {name: given.pop(name, None) for name in OPTIONS}
        zone = _zone(said["zone"] or "UTC")
        ring = slots = None
        if isinstance(rule, Slots):
            ring, slots, text = task.name, rule.n, str(rule.at(0))  # until it has a seat
        else:
            rule = _rule(rule)
            text = str(rule)
        is_even = isinstance(rule, Slots)
        return NewSchedule(
            task=task.name,
            key=key,
            queue=task.queue_for(given),
            args=task.checked_args(given),
            rule=text,
            zone=zone.key,
            next_at=None,  # planned when it is written
            rank=task.rank if said["rank"] is None else checked_rank(said["rank"]),
            catch_up=_one_of("catch_up", said["catch_up"] or "latest", CatchUp),
            max_lateness=_lateness(said["max_lateness"]),
            overlap=_one_of("overlap", said["overlap"] or ("supersede" if is_even else "allow"), Overlap),
            ring=ring,
            slots=slots,
            is_declared=is_declared,
        )

    def _seat(self, new: NewSchedule, slot: int) -> tuple[str, datetime]:
        rule = _seated(new.rule, slot)
        next_at = rule.next(self._app.clock.now(), zone_named(new.zone))
        assert next_at is not None
        return str(rule), next_at

    def _write(self, new: NewSchedule, actor: str = LOCAL, connection: Any = None) -> Schedule:
        self._check_ring(new)
        planned = _planned(new, self._app.clock.now())
        ((schedule_id, is_fresh),) = self._app.store.enroll([planned], self._seat, connection)
        if not is_fresh:
            if (self.get(schedule_id, connection).ring is None) != (new.ring is None):
                raise InputError(
                    "rule", f"{new.key!r} has another kind of rule, with a slot or without; remove it first"
                )
            fields: dict[str, Any] = {
                "queue": new.queue, "args": new.args, "zone": new.zone, "rank": new.rank, "catch_up": new.catch_up,
                "max_lateness": new.max_lateness, "overlap": new.overlap, "is_declared": new.is_declared,
            }  # fmt: skip
            if new.ring is None:
                fields["rule"] = new.rule
            who = "code" if new.is_declared else actor
            self._revise([schedule_id], who, advance.changed, connection, **fields)
        return self.get(schedule_id, connection)

    def _check_ring(self, new: NewSchedule) -> None:
        """All members of a ring divide the same period by the same number."""
        for (text,) in self._app.store.read("ring_rule", {"ring": new.ring}) if new.ring is not None else ():
            rule, known = _slot_of(new.rule), _slot_of(text)
            if (rule.of, rule.period) != (known.of, known.period):
                raise InputError("rule", f"the members of {new.ring} have {known.of} slots; all of them have the same")

    # -- care

    def change(self, schedule_id: int, *, actor: str = LOCAL, **fields: Any) -> Schedule:
        """Other values: rule, zone, catch_up, max_lateness, overlap, rank, and `args` as a whole."""
        schedule = self.get(schedule_id)
        said: dict[str, Any] = {}
        for name, value in fields.items():
            match name:
                case "rule":
                    if schedule.ring is not None:
                        raise InputError("rule", "a member of a ring keeps its slot; see `duly slots`")
                    said["rule"] = str(_rule(value))
                case "zone":
                    said["zone"] = _zone(value).key
                case "catch_up":
                    said["catch_up"] = _one_of(name, value, CatchUp)
                case "overlap":
                    said["overlap"] = _one_of(name, value, Overlap)
                case "max_lateness":
                    said["max_lateness"] = _lateness(value)
                case "rank":
                    said["rank"] = checked_rank(value)
                case "args":
                    task = self._app.task_named(schedule.task)
                    said["args"], said["queue"] = task.checked_args(dict(value)), task.queue_for(value)
                case _:
                    known = "rule, zone, catch_up, max_lateness, overlap, rank, args"
                    raise InputError(name, f"cannot be changed; known: {known}")
        self._revise([schedule_id], actor, advance.changed, **said)
        return self.get(schedule_id)

    def pause(self, *ids: int, actor: str = LOCAL, connection: Any = None) -> None:
        """Make no more items until it is resumed."""
        self._revise(ids, actor, _plainly(advance.paused), connection)

    def resume(self, *ids: int, actor: str = LOCAL, connection: Any = None) -> None:
        self._revise(ids, actor, _plainly(advance.resumed), connection)

    def reactivate(self, *ids: int, actor: str = LOCAL, connection: Any = None) -> None:
        """A person says that what failed too often in a row may be tried again."""
        self._revise(ids, actor, _plainly(advance.reactivated), connection)

    def run_now(self, *ids: int, actor: str = LOCAL, connection: Any = None) -> None:
        """One occurrence more, now; WrongState beside one that is still under way where there may be one only."""
        self._revise(ids, actor, lambda each, live, now, who: advance.run_now(each, now, who, live), connection)

    def remove(self, *ids: int, actor: str = LOCAL) -> None:
        """Gone, with what still waits of it."""
        self._revise(ids, actor, advance.removed)

    def _revise(
        self, ids: Sequence[int], actor: str, act: Callable[..., Revision], connection: Any = None, **fields: Any
    ) -> None:
        now = self._app.clock.now()

        def plan(schedules: Sequence[Schedule], live: Mapping[int, list[Item]]) -> list[Revision]:
            return [act(each, live.get(each.id, ()), now, actor, **fields) for each in schedules]

        if self._app.store.revise(ids, now, len(ids), plan, connection) < len(set(ids)):
            found = {each.id for each in self.some(ids)}
            missing = ", ".join(str(each) for each in ids if each not in found)
            if missing:
                raise ItemNotFound(f"there is no schedule {missing}")

    # -- looks

    def owned(
        self, owner: str | None, *, after: int = 0, most: int = 100, connection: Any = None, **filters: Any
    ) -> list[Schedule]:
        """A page of what someone owns, by id; None: of all."""
        given = {"task": None, "key": None, "ring": None, "slot": None, "state": None, **filters}
        given = {**given, "owner": owner, "after": after, "most": most}
        return [Schedule(*row) for row in self._app.store.read("schedules_page", given, connection)]

    def owned_one(self, schedule_id: int, owner: str | None, connection: Any = None) -> Schedule | None:
        """This one, if it is theirs."""
        found = self.owned(owner, after=schedule_id - 1, most=1, connection=connection)
        return found[0] if found and found[0].id == schedule_id else None

    def get(self, schedule_id: int, connection: Any = None) -> Schedule:
        which = {"id": schedule_id, "task": None, "key": None}
        return self._one(which, f"there is no schedule {schedule_id}", connection)

    def find(self, task: str, key: str, connection: Any = None) -> Schedule:
        return self._one({"id": None, "task": task, "key": key}, f"{task} has no schedule {key!r}", connection)

    def _one(self, which: dict[str, Any], problem: str, connection: Any) -> Schedule:
        rows = self._app.store.read("schedule", which, connection)
        if not rows:
            raise ItemNotFound(problem)
        return Schedule(*rows[0])

    def some(self, ids: Iterable[int]) -> list[Schedule]:
        """Those of these that exist, by id."""
        return [Schedule(*row) for row in self._app.store.read("schedules_with_ids", {"ids": _json(list(ids))})]

    def page(
        self,
        *,
        task: str | None = None,
        key: str | None = None,
        state: Status | None = None,
        ring: str | None = None,
        slot: int | None = None,
        after: int = 0,
        most: int = 100,
    ) -> list[Schedule]:
        """By id; `after` is the last id of the page before."""
        filters = {"task": task, "key": key, "state": state, "ring": ring, "slot": slot, "after": after}
        rows = self._app.store.read("schedules", {**filters, "most": max(1, min(most, PORTION))})
        return [Schedule(*row) for row in rows]

    def pages(self, **filters: Any) -> Iterator[Schedule]:
        """All that fit, a page at a time."""
        after = 0
        while rows := self.page(**filters, after=after, most=PORTION):
            yield from rows
            after = rows[-1].id

    def occurrences(self, schedule_id: int, most: int = 100) -> list[Occurrence]:
        """The items that it made and that are still kept, newest first."""
        rows = self._app.store.read("occurrences", {"schedule_id": schedule_id, "most": max(1, min(most, PORTION))})
        return [Occurrence(*map(_utc, row)) for row in rows]

    def preview(self, rule: Rule | str, zone: str = "UTC", n: int = 5) -> list[datetime]:
        """The next n times of a rule."""
        return preview(_rule(rule), self._app.clock.now(), _zone(zone), min(n, PORTION))

    def describe(self, schedule: Schedule) -> str:
        """Its rule in plain English; as it is written when that is not understood here."""
        try:
            return advance.rule_of(schedule.rule).describe(zone_named(schedule.zone))
        except ValueError:
            return f"{schedule.rule} ({schedule.zone})"

    def slots(self, ring: str | None = None) -> list[SlotLoad]:
        """The load of each slot: its active members."""
        return [SlotLoad(*row) for row in self._app.store.read("slots", {"ring": ring})]

    def rebalance(self, ring: str) -> list[Move]:
        """Who would have to move so that all slots are even again. A preview: nobody moves by itself."""
        members: dict[int, list[Schedule]] = {}
        n = 0
        for schedule in self.pages(ring=ring, state="active"):
            members.setdefault(schedule.slot or 0, []).append(schedule)
            n = _slot_of(schedule.rule).of
        least, extra = divmod(sum(map(len, members.values())), n or 1)
        # The fullest slots keep one more, so that as few as possible move.
        order = sorted(range(n), key=lambda slot: (-len(members.get(slot, ())), slot))
        target = {slot: least + (place < extra) for place, slot in enumerate(order)}
        leaving = [each for slot in order for each in members.get(slot, [])[target[slot] :]]
        seats = [slot for slot in range(n) for _ in range(target[slot] - len(members.get(slot, ())))]
        return [Move(each.id, each.key, each.slot or 0, to) for each, to in zip(leaving, seats, strict=True)]

    def move(self, moves: Iterable[Move], actor: str = LOCAL) -> int:
        """Seat these members elsewhere, for good: a person's decision."""
        count = 0
        for move in moves:
            schedule = self.get(move.schedule_id)
            rule = str(_seated(schedule.rule, move.to))
            self._revise([schedule.id], actor, advance.changed, rule=rule, slot=move.to)
            count += 1
        return count

    def audit(self, schedule_id: int | None = None, before: int | None = None, most: int = 100) -> list[AuditLine]:
        """What was done to a schedule, or to all, newest first."""
        subject = None if schedule_id is None else f"schedule:{schedule_id}"
        rows = self._app.store.read("audit", {"subject": subject, "before": before, "most": most})
        return [AuditLine(*row) for row in rows]


def _planned(new: NewSchedule, now: datetime) -> NewSchedule:
    return new if new.ring is not None else replace(new, next_at=parse(new.rule).next(now, zone_named(new.zone)))


def _plainly(act: Callable[[Schedule, datetime, str], Revision]) -> Callable[..., Revision]:
    """An act that does not care for what waits."""
    return lambda schedule, _, now, actor: act(schedule, now, actor)


def _rule(rule: Any) -> Rule:
    if isinstance(rule, str):
        try:
            return parse(rule)
        except ValueError as error:
            raise InputError("rule", str(error)) from None
    if not hasattr(rule, "next") or not hasattr(rule, "describe"):
        raise InputError("rule", f'must be a rule such as Daily("09:00"), or its text, got {rule!r:.80}')
    found: Rule = rule
    return found


def _zone(name: Any) -> ZoneInfo:
    try:
        return zone_named(name.key if isinstance(name, ZoneInfo) else name)
    except ValueError as error:
        raise InputError("zone", str(error).removeprefix("zone: ")) from None


def _lateness(given: Any) -> float | None:
    return None if given is None else checked_lateness(given).total_seconds()


def _one_of(field: str, value: Any, choices: Any) -> Any:
    if value not in choices.__args__:
        raise InputError(field, f"must be one of {', '.join(choices.__args__)}, got {value!r:.80}")
    return value


def _without(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("key", "rule")}


def _slot_of(text: str) -> Slot:
    rule = parse(text)
    assert isinstance(rule, Slot)
    return rule


def _seated(text: str, slot: int) -> Slot:
    rule = _slot_of(text)
    return Slot(slot, rule.of, rule.period)


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _json(value: object) -> str:
    return codec.encode(value).decode()
