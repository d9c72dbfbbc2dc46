"""`app.schedules`: the verbs of schedules for code. What the code declares is written when the app starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from operator import attrgetter
from typing import Any

from duly.core.aforms import in_thread, streamed
from duly.core.errors import ConfigError, DoesNotExist, InputError
from duly.core.model import NewSchedule
from duly.core.policy.recur import Every
from duly.tasks.checks import checked_key
from duly.tasks.puttable import Declaration, Recurring
from duly.tasks.task import Task
from duly.verbs import LOCAL, Verbs, local
from duly.verbs.context import by_code
from duly.verbs.schedules import OPTIONS, ScheduleRow, ScheduleVerbs
from duly.verbs.timetable import Timetable

CODE = local("code")


_verbs = attrgetter("_verbs")


class Schedules(Timetable):
    def __init__(self, verbs: Verbs, is_task: Callable[[str], bool]) -> None:
        super().__init__(verbs)
        self._verbs = verbs.schedules
        self._is_task = is_task
        self._declared: dict[tuple[str, str], Declaration] = {}
        self._begun: list[Recurring[...]] = []
        self._is_reconciled = False
        self._own: dict[tuple[str, str], NewSchedule | None] = {}  # duly's own, by task and key; None: there is none

    create = by_code(_verbs, ScheduleVerbs.create)
    change = by_code(_verbs, ScheduleVerbs.change)
    pause = by_code(_verbs, ScheduleVerbs.pause)
    resume = by_code(_verbs, ScheduleVerbs.resume)
    reactivate = by_code(_verbs, ScheduleVerbs.reactivate)
    reactivate_all = by_code(_verbs, ScheduleVerbs.reactivate_all)
    run_now = by_code(_verbs, ScheduleVerbs.run_now)
    remove = by_code(_verbs, ScheduleVerbs.remove)
    move = by_code(_verbs, ScheduleVerbs.move)

    def create_many(
        self, task: str | Task[..., Any], rule: Any, rows: Iterable[ScheduleRow], connection: Any = None
    ) -> int:
        """Create any number of schedules; each row has its key, args and options, and may have its own rule.

        Keys that exist are left as they are; returns how many are new.
        """
        with self._verbs.lent(connection) as own:
            return self._verbs.create_many(task, rule, rows, connection=own)

    acreate = in_thread(create)
    acreate_many = in_thread(create_many)
    achange = in_thread(change)
    apause = in_thread(pause)
    aresume = in_thread(resume)
    areactivate = in_thread(reactivate)
    areactivate_all = in_thread(reactivate_all)
    arun_now = in_thread(run_now)
    aremove = in_thread(remove)
    amove = in_thread(move)
    aget = in_thread(Timetable.get)
    afind = in_thread(Timetable.find)
    apage = in_thread(Timetable.page)
    apages = streamed(Timetable.pages)
    astory = in_thread(Timetable.story)
    aoccurrences = in_thread(Timetable.occurrences)
    aslots = in_thread(Timetable.slots)

    def begin(self, begun: Recurring[...]) -> None:
        """Remember a schedule that `every` began: it must be put before a worker starts."""
        self._begun.append(begun)

    def declare(self, begun: Recurring[...], args: dict[str, Any]) -> Declaration:
        """Remember a schedule to be written when the app starts; if it has started already, write it now."""
        task, rule, options = begun.task, begun.rule, begun.options
        if begun.key is None:
            # The key is made of rule and arguments, so that each schedule of a task keeps its row while it is the same.
            given = {name: value for name in OPTIONS if (value := options.get(name)) is not None}
            key = " ".join(f"declared {rule} {given or ''} {args or ''}".split())
            key = key if len(key) <= 200 else f"{key[:160]} {sha256(key.encode()).hexdigest()[:32]}"
            declaration = Declaration(self._verbs.new(task, rule, checked_key(key), args, options, is_declared=True))
            if (task.name, key) in self._declared:
                raise InputError("rule", f"{task.name} has this schedule already: give one of them a key")
        else:
            declaration = Declaration(self._verbs.new(task, rule, checked_key(begun.key), args, options))
        self._declared[task.name, declaration.new.key] = declaration
        if self._is_reconciled:
            self._write(declaration)
        return declaration

    def set_own(self, task: Task[..., Any], key: str, every: float) -> None:
        """Remember that one of duly's own tasks is due every `every` seconds; 0: it has no schedule."""
        self._own[task.name, key] = self._verbs.new(task, Every(every), key, {}, {"overlap": "skip"}) if every else None

    def reconcile(self) -> None:
        """Write the schedules that the code declares, and remove those that it no longer declares."""
        for begun in self._begun:
            if not begun.is_put:
                raise ConfigError(f"{begun.task.name}.every({begun.rule}) has no arguments yet: call its put(…)")
        for declaration in list(self._declared.values()):
            self._write(declaration)
        self._is_reconciled = True
        for (task, key), new in self._own.items():
            self._write_own(task, key, new)
        for schedule_id, task, key in self.declared():
            if self._is_task(task) and (task, key) not in self._declared:
                with suppress(DoesNotExist):  # another worker that starts at the same time removed it
                    self._verbs.remove(CODE, schedule_id)

    def _write_own(self, task: str, key: str, new: NewSchedule | None) -> None:
        """Every worker does this when it starts, so nothing is written where nothing changes."""
        try:
            known = self.find(task, key)
        except DoesNotExist:
            if new is not None:
                self._verbs.write(CODE, new)
            return
        if new is None:
            with suppress(DoesNotExist):
                self._verbs.remove(CODE, known.id)
        elif known.rule != new.rule:
            self._verbs.change(CODE, known.id, rule=new.rule)

    def _write(self, declaration: Declaration) -> None:
        self._verbs.write(CODE if declaration.new.is_declared else LOCAL, declaration.new)
