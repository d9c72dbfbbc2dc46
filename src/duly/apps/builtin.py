"""All built-in apps on one app: what `duly up` and `duly serve` run when they are not given one."""

from __future__ import annotations

from duly import Duly
from duly.apps.birthdays import birthdays_on
from duly.apps.catalog import catalog_on
from duly.apps.deliver import http_on
from duly.apps.reminders import reminders_on

app = Duly()
reminders = reminders_on(app)
catalog = catalog_on(app)
birthdays = birthdays_on(app)
http = http_on(app)
