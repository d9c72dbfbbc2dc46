"""The settings of the `http` task."""

from __future__ import annotations

from dataclasses import dataclass

from duly.plugin import Section, setting


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """The settings of the `http` task: DULY_OUTBOUND_ALLOW and DULY_SIGNING_SECRET in the environment."""

    outbound_allow: str = setting(
        "", "What the http task may call beside public addresses: networks, addresses and host names, by commas."
    )
    signing_secret: str = setting(
        "", "The secret of signatures on what the http task sends: whsec_ and base64, or any text.", secret=True
    )
