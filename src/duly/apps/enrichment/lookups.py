"""The tasks that look products up, for the rows of tables and for images, and their queries."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import partial
from typing import Any

from duly import Attempt, Duly, InputError, Pace, Placed
from duly.apps.enrichment.fields import PRODUCT
from duly.apps.enrichment.provider import Product
from duly.apps.enrichment.rounds import AnswerTimedOut, Metrics, Result, Rounds, ServerFailed, retries
from duly.apps.enrichment.searches import Searches, SearchEvent
from duly.apps.enrichment.settings import QUEUE, EnrichmentSettings, listed
from duly.apps.enrichment.words import Wanted, named, queries
from duly.core.model import Verdict
from duly.tasks.task import Task
from duly.verbs import LOCAL, Principal

IMAGE_VARIANTS = ("image", "name")


class Enrichment:
    """Product look-ups on an app."""

    def __init__(self, app: Duly, product: Task[..., Any], image: Task[..., Any], metrics: Metrics) -> None:
        self.app = app
        self.searches = Searches(app)
        self.product = product
        self.image = image
        self.metrics = metrics

    def look_up(self, **known: Any) -> Placed[Any]:
        """Have one product looked up, by any of title, brand, sku and ean; for many, send a file."""
        return self.product.put(**known)

    def events(self, job_id: int, after: int = 0, most: int = 100, who: Principal = LOCAL) -> list[SearchEvent]:
        """The requests to the provider for the rows of a job, in the order in which they were recorded."""
        return self.searches.page(who, job_id, after, most)


def install(app: Duly, settings: EnrichmentSettings) -> Enrichment:
    """Register the two tasks on this app, and have them take jobs of the types `csv` and `image`.

    A type that the app has already stays with the task that it has.
    """
    metrics = Metrics()
    by_words = Rounds(app, settings, metrics, listed(settings.variants))
    by_image = Rounds(app, settings, metrics, IMAGE_VARIANTS)
    retry = retries(app, settings)
    pace = Pace(QUEUE, most=settings.calls_at_a_time, overloads=(ServerFailed, AnswerTimedOut))
    # As long as all retailers together may take, and a while for a turn and the database.
    deadline = 60.0 + settings.timeout_seconds * max(len(listed(settings.retailers)), 1)

    @app.task(name="enrichment.product", queue=QUEUE, retry=retry, pace=pace, deadline=deadline, check=_check_words)
    def product(
        attempt: Attempt,
        title: str = "",
        brand: str = "",
        sku: str = "",
        ean: str = "",
        **more: Any,  # noqa: ARG001 - what else a row has is kept with it
    ) -> Result | Verdict:
        """Look a product up."""
        wanted = Wanted(title, brand, sku, ean)
        words = queries(wanted)

        def question(variant: str) -> tuple[str, Mapping[str, Any]]:
            return "/products", {"query": words[variant]}

        return by_words.run(attempt, tuple(words), question, partial(_fits, wanted))

    @app.task(name="enrichment.image", queue=QUEUE, retry=retry, pace=pace, deadline=deadline)
    def image(
        attempt: Attempt,
        name: str,
        thumbnail: str = "",
        sha256: str = "",
        format: str = "",
        width: int = 0,
        height: int = 0,
        bytes: int = 0,
    ) -> Result | Verdict:
        """Look up what an image shows: by the image, made small, and then by the words of its name."""
        words = named(name)
        available = tuple(variant for variant, has_it in (("image", thumbnail), ("name", words)) if has_it)

        def question(variant: str) -> tuple[str, Mapping[str, Any]]:
            if variant == "name":
                return "/products", {"query": words}
            seen = {"name": name, "sha256": sha256, "format": format, "width": width, "height": height, "bytes": bytes}
            return "/images", {"query": words, "image": {**seen, "data": _kept(app, thumbnail)}}

        return by_image.run(attempt, available, question)

    for kind, task, fields in (("csv", product, PRODUCT), ("image", image, None)):
        if kind not in app.internals.job_types:
            app.job_type(kind, task, fields, images=kind == "image")
    return Enrichment(app, product, image, metrics)


def _check_words(args: dict[str, Any]) -> None:
    if not any(args[name] for name in ("title", "sku", "ean")):
        raise InputError("title", "a product is looked up by its title, sku or ean, and this has none of them")


def _fits(wanted: Wanted, variant: str, found: Product) -> bool:
    """Whether this is the product. A response to a number with another number is not."""
    number = getattr(found, variant) if variant in ("sku", "ean") else None
    return number is None or _bare(number) == _bare(getattr(wanted, variant))


def _kept(app: Duly, key: str) -> str:
    """The small picture of a row, as base64."""
    with app.internals.intake.files.open(key) as file:
        return b64encode(file.read()).decode()


def _bare(number: str) -> str:
    """A number as it is compared: without case, spaces, dashes and dots."""
    return "".join(letter for letter in number.casefold() if letter.isalnum())
