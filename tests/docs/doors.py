"""Which verb has which doors: the table in docs/reference.md, which is written by `python -m tests.docs.doors`.

A verb is a method that takes who acts first. Each has a door in Python, over HTTP, in the client and at the command
line, or says why it has none.
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

from duly import Duly
from duly.apps.birthdays import Birthdays
from duly.apps.catalog import Catalog
from duly.apps.enrichment.lookups import Enrichment
from duly.apps.reminders import Reminders
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference.md"
BEGIN, END = "<!-- doors: written by python -m tests.docs.doors -->\n", "<!-- end of doors -->\n"


_VERBS = Duly("sqlite://").internals.verbs
NOUNS = {noun: type(value) for noun, value in vars(_VERBS).items() if noun != "ground"}


# What the apps that come along put on an app: their verbs are all of their methods that are said below.
OF_APPS = {"reminders": Reminders, "catalog": Catalog, "birthdays": Birthdays, "enrichment": Enrichment}


class No(str):
    """There is no such door, for this reason."""


class Doors(NamedTuple):
    python: str
    http: str
    client: str
    cli: str


def inner(reason: str) -> Doors:
    """Of a verb that is a part of others, for this reason."""
    return Doors(*(No(reason) for _ in Doors._fields))


APPS = No("no method for apps; use `client.http`")
ACT = "POST /api/schedules/act"

DOORS: dict[str, Doors] = {
    "items.put": Doors("task.put", "POST /api/items", "put", "put"),
    "items.find": inner("a step of show and edit"),
    "items.show": Doors("app.read.story", "GET /api/items/{item_id}", "story", "show"),
    "items.edit": Doors("app.edit", "PATCH /api/items/{item_id}", "edit", "edit"),
    "items.cancel": Doors("app.cancel", "POST /api/items/act", "cancel", "cancel"),
    "items.retry": Doors("app.retry", "POST /api/items/act", "retry", "retry"),
    "items.discard": Doors("app.discard", "POST /api/items/act", "discard", "discard"),
    "items.again": Doors("app.again", "POST /api/items/{item_id}/again", "again", "again"),
    "items.act": Doors("app.client.act_on", "POST /api/items/act", "act_on", No("its commands take many ids")),
    "tasks.retask": Doors("app.retask", "POST /api/items/retask", "retask", "items retask"),
    "tasks.plan": inner("a step of retask, before its transaction"),
    "listing.page": Doors("app.client.items", "GET /api/items", "items", "items"),
    "listing.counts": Doors(
        "app.client.item_counts", "GET /api/items/counts", "item_counts", No("lists on the command line show no counts")
    ),
    "read.page": Doors("app.read.page", "GET /api/items", "items", "items"),
    "review.groups": Doors("app.client.groups", "GET /api/review", "groups", "review"),
    "review.totals": Doors("app.client.review_totals", "GET /api/review/totals", "review_totals", "review"),
    "review.group": Doors("app.client.group", "GET /api/review/{group_id}", "group", "review show"),
    "review.story": Doors("app.client.group", "GET /api/review/{group_id}", "group", "review show"),
    "review.notes": Doors("app.client.group", "GET /api/review/{group_id}", "group", "review show"),
    "review.write_note": Doors("app.client.write_note", "POST /api/review/{group_id}/notes", "write_note", "review note"
    ),
    "review.canary": Doors("app.client.canary", "POST /api/review/{group_id}/canary", "canary", "review canary"),
    "review.retry": Doors("app.client.retry_group", "POST /api/acts", "retry_group", "review retry"),
    "review.discard": Doors("app.client.discard_group", "POST /api/acts", "discard_group", "review discard"),
    "acts.count": Doors("app.client.count", "POST /api/acts/count", "count", "acts order"),
    "acts.order": Doors("app.client.order", "POST /api/acts", "order", "acts order"),
    "acts.page": Doors("app.client.acts", "GET /api/acts", "acts", "acts"),
    "acts.get": Doors("app.client.act", "GET /api/acts/{act_id}", "act", "acts show"),
    "acts.cancel": Doors("app.client.cancel_act", "POST /api/acts/{act_id}/cancel", "cancel_act", "acts cancel"),
    "jobs.open": Doors("app.job", No("rows are sent as a file"), No("rows are sent as a file"), "jobs create"),
    "jobs.work": Doors("app.ajob", No("rows are sent as a file"), No("rows are sent as a file"), "jobs create"),
    "jobs.create": Doors("app.client.create_job", "POST /api/jobs", "create_job", "jobs create"),
    "jobs.find": Doors("app.find_job", *(No("keys of jobs are given in code only") for _ in range(3))),
    "jobs.get": inner("a step of every verb on a job"),
    "jobs.show": Doors("app.client.job", "GET /api/jobs/{job_id}", "job", "jobs show"),
    "jobs.page": Doors("app.client.jobs", "GET /api/jobs", "jobs", "jobs"),
    "jobs.pause": Doors("job.pause", "POST /api/jobs/{job_id}/pause", "pause_job", "jobs pause"),
    "jobs.resume": Doors("job.resume", "POST /api/jobs/{job_id}/resume", "resume_job", "jobs resume"),
    "jobs.cancel": Doors("job.cancel", "POST /api/jobs/{job_id}/cancel", "cancel_job", "jobs cancel"),
    "jobs.reprocess": Doors("job.reprocess", "POST /api/jobs/{job_id}/reprocess", "reprocess_job", "jobs reprocess"),
    "jobs.kickoff": Doors("job.kickoff", "POST /api/jobs/{job_id}/kickoff", "kick_off_job", "jobs kickoff"),
    "job_checks.check": Doors("job.check", "POST /api/jobs/{job_id}/check", "check_job", "jobs check"),
    "jobs.remove": Doors("job.remove", "DELETE /api/jobs/{job_id}", "remove_job", "jobs remove"),
    "jobs.mend": Doors("app.client.mend_job", "POST /api/jobs/{job_id}/mend", "mend_job", "jobs mend"),
    "jobs.inputs_in_error": inner("restores masked values when rows are mended"),
    "scans.begin": Doors("app.client.scan", "POST /api/ingestion/scan", "scan", "jobs scan"),
    "job_rows.page": Doors("app.client.job_items", "GET /api/jobs/{job_id}/items", "job_items", "jobs items"),
    "job_rows.by_number": Doors("app.client.job_items", "GET /api/jobs/{job_id}/items", "job_items", "jobs items"
    ),
    "job_rows.pending": Doors("app.client.pending", "GET /api/pending", "pending", "jobs pending"),
    "job_rows.counts": Doors("app.client.pending_counts", "GET /api/pending/counts", "pending_counts",
        No("lists on the command line show no counts"),
    ),
    "job_rows.counts_of": Doors("app.client.job_counts", "GET /api/jobs/{job_id}/counts", "job_counts", "jobs show"
    ),
    "job_rows.each": Doors("app.client.export_job", "POST /api/jobs/{job_id}/export", "export_job", "jobs export"),
    "job_rows.result_names": inner("the columns of an export"),
    "job_rows.argument_names": inner("the columns of an export"),
    "schedules.create": Doors("app.schedules.create", "POST /api/schedules", "schedule", "schedules add"),
    "schedules.write": inner("a step of create and of schedules declared in code"),
    "schedules.page": Doors("app.schedules.page", "GET /api/schedules", "schedules", "schedules"),
    "schedules.reached": Doors(
        "app.schedules.get", "GET /api/schedules/{schedule_id}", "schedule_story", "schedules show"
    ),
    "schedules.change": Doors(
        "app.schedules.change", "PATCH /api/schedules/{schedule_id}", "change_schedule", "schedules change"
    ),
    "schedules.pause": Doors("app.schedules.pause", ACT, "act_on_schedules", "schedules pause"),
    "schedules.resume": Doors("app.schedules.resume", ACT, "act_on_schedules", "schedules resume"),
    "schedules.run_now": Doors("app.schedules.run_now", ACT, "act_on_schedules", "schedules run-now"),
    "schedules.reactivate": Doors("app.schedules.reactivate", ACT, "act_on_schedules", "schedules reactivate"),
    "schedules.act": Doors("app.client.act_on_schedules", ACT, "act_on_schedules", No("its commands take many ids")),
    "schedules.reactivate_all": Doors(
        "app.schedules.reactivate_all", "POST /api/schedules/reactivate", "reactivate_all",
        "schedules reactivate-all",
    ),
    "schedules.remove": Doors("app.schedules.remove", ACT, "act_on_schedules", "schedules remove"),
    "schedules.preview": Doors("app.schedules.preview", "POST /api/schedules/preview", "preview", "schedules preview"),
    "schedules.slots": Doors("app.schedules.slots", "GET /api/slots", "slots", "slots"),
    "schedules.move": Doors(
        "app.schedules.move", No("it changes rows of all owners"), No("it changes rows of all owners"), "slots"
    ),
    "queues.pause": Doors("app.pause", "POST /api/queues/{name}/{act}", "pause", "queues pause"),
    "queues.resume": Doors("app.resume", "POST /api/queues/{name}/{act}", "resume", "queues resume"),
    "read.queues": Doors("app.read.queues", "GET /api/queues", "queues", "queues"),
    "queues.set_limit": Doors("app.set_limit", "PUT /api/limits/{name}", "set_limit", "limits set"),
    "read.limits": Doors("app.read.limits", "GET /api/limits", "limits", "limits"),
    "users.page": Doors("app.client.users", "GET /api/users", "users", "users"),
    "users.get": Doors("app.client.user", "GET /api/users/{user}", "user", "users"),
    "users.create": Doors("app.client.create_user", "POST /api/users", "create_user", "users add"),
    "users.change": Doors("app.client.change_user", "PATCH /api/users/{user}", "change_user", "users role"),
    "users.keys": Doors("app.client.keys", "GET /api/keys", "keys", "keys"),
    "users.key": inner("returned by make and revoke"),
    "users.make_key": Doors("app.client.make_key", "POST /api/keys", "make_key", "keys add"),
    "users.revoke_key": Doors("app.client.revoke_key", "DELETE /api/keys/{key_id}", "revoke_key", "keys revoke"),
    "audit.page": Doors("app.client.audit", "GET /api/audit", "audit", "audit"),
    "audit.note": inner("the audit line of every verb"),
    "audit.note_each": inner("the audit lines of a verb on many rows"),
    "read.workers": Doors("app.read.workers", "GET /api/workers", "workers", "now"),
    "read.alerts": Doors("app.read.alerts", "GET /api/alerts", "alerts", "alerts"),
    "now.look": Doors("app.client.now", "GET /api/now", "now", "now"),
    "history.look": Doors("app.client.history", "GET /api/history", "history", "history"),
    "reminders.schedule": Doors("reminders.schedule", "POST /api/reminders", APPS, "reminders add"),
    "reminders.list": Doors("reminders.list", "GET /api/reminders", APPS, "reminders"),
    "reminders.get": Doors("reminders.get", "GET /api/reminders/{reminder_id}", APPS, "reminders show"),
    "reminders.edit": Doors("reminders.edit", "PATCH /api/reminders/{reminder_id}", APPS, "reminders edit"),
    "reminders.cancel": Doors(
        "reminders.cancel", "POST /api/reminders/{reminder_id}/cancel", APPS, "reminders cancel"
    ),
    "reminders.retry": Doors("reminders.retry", "POST /api/items/act", "retry", "reminders retry"),
    "catalog.publish": Doors("catalog.publish", "POST /api/products", APPS, "products publish"),
    "catalog.import_many": Doors("catalog.import_many", "POST /api/products/import", APPS, "products import"),
    "catalog.products": Doors("catalog.products", "GET /api/products", APPS, "products"),
    "catalog.withdraw": Doors("catalog.withdraw", "DELETE /api/products/{sku}", APPS, "products withdraw"),
    "catalog.reactivate": Doors(
        "catalog.reactivate", "POST /api/products/{sku}/reactivate", APPS, "products reactivate"
    ),
    "catalog.reactivate_all": Doors(
        "catalog.reactivate_all", "POST /api/products/reactivate", APPS, "products reactivate-all"
    ),
    "catalog.day": Doors("catalog.day", "GET /api/catalog/day", APPS, "products day"),
    "birthdays.add": Doors("birthdays.add", "POST /api/people", APPS, "people add"),
    "birthdays.list": Doors("birthdays.list", "GET /api/people", APPS, "people"),
    "birthdays.get": Doors("birthdays.get", "GET /api/people/{person}", APPS, "people show"),
    "birthdays.change": Doors("birthdays.change", "PATCH /api/people/{person}", APPS, "people change"),
    "birthdays.remove": Doors("birthdays.remove", "DELETE /api/people/{person}", APPS, "people remove"),
    "enrichment.look_up": Doors("enrichment.look_up", "POST /api/items", "put", "put"),
    "enrichment.events": Doors("enrichment.events", "GET /api/jobs/{job_id}/events", APPS, "lookups"),
    "read.late": Doors("app.read.late", "GET /api/late", "late", "late"),
    "read.stuck": Doors("app.read.stuck", "GET /api/stuck", "stuck", "stuck"),
    "read.silence": Doors("app.read.silence", "GET /api/alive", "silence", "alive"),
}  # fmt: skip


def known() -> set[str]:
    """All verbs: what takes who acts first."""
    return {
        f"{noun}.{name}"
        for noun, kind in NOUNS.items()
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and list(inspect.signature(method).parameters)[1:2] == ["who"]
    }


def table() -> str:
    lines = ["| verb | Python | HTTP | client | command |", "| --- | --- | --- | --- | --- |"]
    for verb, doors in DOORS.items():
        cells = [f"– {cell}" if isinstance(cell, No) else f"`{cell}`" for cell in _said(doors)]
        lines.append(f"| {' | '.join([f'`{verb}`', *cells])} |")
    return "\n".join(lines) + "\n"


def _said(doors: Doors) -> Doors:
    def said(cell: str, form: str) -> str:
        return cell if isinstance(cell, No) else form.format(cell)

    return Doors(doors.python, doors.http, said(doors.client, "client.{}"), said(doors.cli, "duly {}"))


def written() -> str:
    """The page with the table as it is to be."""
    before, _, rest = PAGE.read_text(encoding="utf8").partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf8")
