"""From a file over HTTP through real workers, which are killed meanwhile, and a difficult provider, to the export."""

from __future__ import annotations

import csv
import io
import random
import re
import threading
import time
from collections import Counter
from pathlib import Path

from duly import Duly
from duly.apps.enrichment import enrichment_on
from duly.client import Client
from duly.verbs import LOCAL
from duly.web.server import Service
from tests.apps.enrichment.conftest import Shop
from tests.outbound.provider import Answer, Request, answer
from tests.process.fleet import fleet, until

ROWS = 120
QUICK = {"lease_seconds": 3, "beat_seconds": 0.5, "sweep_seconds": 0.5, "enrichment_not_found_seconds": 0.1}


class BusyShop(Shop):
    """Slow; has enough of every tenth question; finds each third product by its title only, and each tenth never."""

    def __init__(self) -> None:
        super().__init__()
        self._busy = threading.Lock()
        self._count = 0

    def accept(self, request: Request) -> Answer:
        time.sleep(0.02)
        with self._busy:
            self.requests.append(request)
            self._count += 1
            if self._count % 10 == 0:
                return answer(429, Retry_After="1")
        by = request.body["by"]
        number = int(re.findall(r"\d+", request.body["query"])[-1])
        if number % 10 == 9 or (number % 3 == 0 and by == "sku"):
            return answer(404)
        body = f'{{"products": [{{"title": "Found {number}", "price": {number}.10, "currency": "EUR"}}]}}'
        return answer(200, body.encode())


def expected(number: int) -> tuple[str, str, str, str]:
    if number % 10 == 9:
        return "NOT_FOUND", "", "", ""
    return "DONE", f"Found {number}", f"{number}.10", "title" if number % 3 == 0 else "sku"


def test_every_row_is_found_once_whatever_the_provider_and_the_workers_do(database_url: str, tmp_path: Path) -> None:
    choose = random.Random(11)
    with BusyShop() as shop:
        settings = {**QUICK, "files_url": str(tmp_path / "files"), "enrichment_base_url": shop.url}
        app = Duly(database_url, **settings)
        enrichment = enrichment_on(app)
        with fleet(database_url, tmp_path, **settings) as ours, Service(app, "127.0.0.1", 0) as service:
            client = Client(service.url)
            content = "title,sku\n" + "".join(f"Product T-{n},S-{n}\n" for n in range(ROWS))
            job_id = client.create_job(io.BytesIO(content.encode()), "products.csv", job_type="csv")
            ours.start(2, spec="duly.apps.enrichment:app")
            for ended in (15, 60):
                until(lambda ended=ended: client.job(job_id).processed_items >= ended, 90, ours.logs)
                ours.kill_one(choose)
                ours.start(1, spec="duly.apps.enrichment:app")
            until(lambda: client.job(job_id).queue_state == "DONE", 120, ours.logs)
            ours.stop()
            told_of = client.job(job_id)
            out = io.BytesIO()
            client.export_job(job_id, out, "csv")
        rows = list(csv.DictReader(io.StringIO(out.getvalue().decode("utf-8-sig"))))
        found = [(row["status"], row["title (result)"], row["price"], row["matched_by"]) for row in rows]
        assert found == [expected(number) for number in range(ROWS)]
        counts = Counter(status for status, *_ in found)
        assert (told_of.done_items, told_of.not_found_items, told_of.failed_items) == (
            counts["DONE"], counts["NOT_FOUND"], 0,
        )  # fmt: skip
        events = enrichment.events(job_id, most=10_000)
        each = Counter(
            (event.item_id, event.attempt, event.variant, event.retailer)
            for event in events
            if event.status in ("found", "not_found")
        )
        assert set(each.values()) == {1}
        assert Counter(event.status for event in events)["found"] == counts["DONE"]
        assert len(events) <= len(shop.requests), "what a killed worker asked may be missing, and nothing is told twice"
        assert app.internals.verbs.jobs.get(LOCAL, job_id).is_over
        client.close()
        app.close()
