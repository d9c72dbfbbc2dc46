"""Verbs: everything that people and programs can do to items, schedules, queues, limits and users.

Everything but the engine uses the store through verbs. A verb is a method of the class of its noun, and its first
argument is the principal who acts. In one transaction (the caller's, if a connection is given) it finds the rows that
the principal may reach, checks their state, changes them, writes a line to the audit log and returns the result. Verbs
know nothing about HTTP, the command line or apps: routes, commands, the facade and apps only translate.
"""

from __future__ import annotations

from duly.verbs.acts import Acts
from duly.verbs.audit import Audit
from duly.verbs.context import LOCAL, SCOPES, Principal, VerbContext, local
from duly.verbs.files import Files, Scans
from duly.verbs.history import History
from duly.verbs.items import Items
from duly.verbs.job_checks import JobChecks
from duly.verbs.job_rows import JobRows
from duly.verbs.jobs import Jobs
from duly.verbs.listing import Listing
from duly.verbs.now import Now
from duly.verbs.queues import Queues
from duly.verbs.review import Review
from duly.verbs.schedules import ScheduleVerbs
from duly.verbs.service import ServiceState
from duly.verbs.takeover import TakeOver
from duly.verbs.tasks import Tasks
from duly.verbs.users import Users

__all__ = ["LOCAL", "SCOPES", "Principal", "VerbContext", "Verbs", "local"]


class Verbs:
    """All verbs of one app, by their nouns."""

    def __init__(self, context: VerbContext) -> None:
        self.context = context
        self.audit = Audit(self)
        self.items = Items(self)
        self.acts = Acts(self)
        self.tasks = Tasks(self)
        self.review = Review(self)
        self.schedules = ScheduleVerbs(self)
        self.listing = Listing(self)
        self.service = ServiceState(self)
        self.users = Users(self)
        self.queues = Queues(self)
        self.files = Files(self)
        self.jobs = Jobs(self)
        self.job_rows = JobRows(self)
        self.job_checks = JobChecks(self)
        self.history = History(self)
        self.now = Now(self)
        self.scans = Scans(self)
        self.takeover = TakeOver(self)
