"""What the browser tests and the screenshots need: Debian's Chromium, a font to write with, and axe-core."""

from __future__ import annotations

from debian import ROOT, ensure_debian
from nodepackages import ensure_packages

# Chromium without its windows, which would cost as much as the pages in them.
PACKAGE, PROGRAM = "chromium-headless-shell", "/usr/bin/chromium-headless-shell"
ATOMIC = "/usr/lib/*/libatomic.so.1"  # Playwright's own Node needs it
FONTS = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"  # Chromium comes without any
AXE_PINS = ROOT / "tests" / "browser" / "pins"


def ensure_browser() -> str:
    """Make sure that there is a browser with a font; returns where it is."""
    ensure_debian("fonts-dejavu-core", FONTS)
    ensure_debian("libatomic1", ATOMIC)
    return str(ensure_debian(PACKAGE, PROGRAM))


def ensure() -> dict[str, str]:
    """Make sure that all of it is there; returns the environment variables that say where."""
    program = ensure_browser()
    axe = ensure_packages(AXE_PINS) / "node_modules" / "axe-core" / "axe.min.js"
    return {"DULY_TEST_CHROMIUM": program, "DULY_TEST_AXE": str(axe)}
