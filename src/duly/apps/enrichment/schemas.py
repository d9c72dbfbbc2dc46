"""Questions to the provider over HTTP."""

from __future__ import annotations

from duly.core.shown import SearchEvent
from duly.web.schemas import Out, fields_of


class SearchEventOut(Out):
    __annotations__ = fields_of(SearchEvent)
