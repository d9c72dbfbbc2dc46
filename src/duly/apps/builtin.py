"""All built-in apps on one app: what `duly up` and `duly serve` run when they are not given one.

The retry service is among them where a broker was named.
"""

from __future__ import annotations

from duly import Duly
from duly.apps.birthdays import birthdays_on
from duly.apps.catalog import catalog_on
from duly.apps.deliver import http_on
from duly.apps.reminders import reminders_on
from duly.config import sources

app = Duly()
reminders = reminders_on(app)
catalog = catalog_on(app)
birthdays = birthdays_on(app)
http = http_on(app)
if "rabbitmq_url" in sources():
    from duly.apps.message_retry import message_retry_on

    messages = message_retry_on(app)
