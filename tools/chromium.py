"""What the browser tests and the screenshots need: Debian's Chromium, a font to write with, and axe-core."""

from __future__ import annotations

from debian import ROOT, ensure_debian
from nodepackages import ensure_packages

PROGRAM = "/usr/bin/chromium"
FONTS = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"  # Chromium comes without any
AXE_PINS = ROOT / "tests" / "browser" / "pins"


def ensure() -> dict[str, str]:
    """Make sure that all of it is there; returns the environment variables that say where."""
    program = ensure_debian("chromium", PROGRAM)
    ensure_debian("fonts-dejavu-core", FONTS)
    axe = ensure_packages(AXE_PINS) / "node_modules" / "axe-core" / "axe.min.js"
    return {"DULY_TEST_CHROMIUM": str(program), "DULY_TEST_AXE": str(axe)}
