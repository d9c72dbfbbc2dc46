"""Alerts of plug-ins."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from duly.core.shown import NewAlert
from duly.engine.alerts import alerts_of_apps
from duly.engine.equipment import AlertFinders


def test_alerts_have_the_name_of_their_plug_in_and_are_over_when_they_are_not_found() -> None:
    finders: AlertFinders = {"texts": lambda: [NewAlert("idle", "nothing is sent")], "parcels": lambda: []}
    found, over = alerts_of_apps(finders, ["texts.idle", "texts.late", "parcels.lost", "late_items", "textsx.idle"])
    assert found == [NewAlert("texts.idle", "nothing is sent")]
    assert over == {"texts.late", "parcels.lost"}


def test_a_plug_in_that_fails_to_look_keeps_its_alerts_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[NewAlert]:
        yield NewAlert("first", "is found")
        raise OSError("the table is gone")

    finders: AlertFinders = {"broken": broken, "texts": lambda: [NewAlert("idle", "nothing is sent")]}
    with caplog.at_level(logging.ERROR):
        found, over = alerts_of_apps(finders, ["broken.second"])
    assert [alert.name for alert in found] == ["texts.idle"]
    assert over == set()
    assert "the alerts of the app broken could not be looked for" in caplog.text
