"""The settings of the `http` task."""

from __future__ import annotations

from dataclasses import dataclass

from duly.plugin import Section, setting


@dataclass(frozen=True, kw_only=True)
class DeliverSettings(Section):
    """The settings of the `http` task: DULY_OUTBOUND_ALLOW and DULY_SIGNING_SECRET in the environment."""

    outbound_allow: str = setting(
        "", "Private targets that the http task may call: networks, addresses and host names, separated by commas."
    )
    signing_secret: str = setting(
        "", "The secret that the http task signs requests with: whsec_ and base64, or any text.", secret=True
    )
