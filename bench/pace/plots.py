"""Plots of a pace against a few providers, in virtual time, as SVG for the docs: `python -m bench.pace --plots`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.pace.provider import Outage, Traits
from bench.pace.virtual import Adaptive, count, run
from duly.core.policy.pace import Pace

FOLDER = Path(__file__).resolve().parent.parent.parent / "docs" / "img"
WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 34, 34
SIXTEEN = Pace("p", most=16)
ANY = 1_000.0  # more calls at a time than there are


def plots() -> Iterator[tuple[str, str]]:
    """The name and the text of each."""
    limit = Traits(kind="tokens", rate=20.0, burst=20.0, latency=0.1, noon=150.0, slowdown=3.0)
    yield "pace-limit", _plot("429 above 20 calls a second; answers take three times as long from 150 s on", limit, 300)
    errors = Traits(kind="queue", slots=ANY, latency=0.1, errors=0.05)
    yield "pace-errors", _plot("5 % of calls fail, whatever the load; 16 calls at a time at most", errors, 120, SIXTEEN)
    load = Traits(kind="busy", slots=8, latency=0.1)
    yield "pace-load", _plot("503 above 8 calls at a time", load, 300)
    outage = Traits(kind="queue", slots=ANY, latency=0.1, outage=Outage(40.0, 60.0))
    yield "pace-outage", _plot("An outage from 40 s to 100 s; 16 calls at a time at most", outage, 140, SIXTEEN)
    window = Traits(kind="window", rate=5.0, window=60.0, latency=0.2)
    yield "pace-window", _plot("429 above 300 calls in a minute that begins anew each minute", window, 480)
    shared = Traits(kind="tokens", rate=20.0, burst=20.0, latency=0.2)
    yield "pace-shared", _plot("Four workers share a provider with 20 calls a second", shared, 300, workers=4)


def write() -> list[Path]:
    written = []
    for name, text in plots():
        path = FOLDER / f"{name}.svg"
        path.write_text(text)
        written.append(path)
    return written


def _plot(title: str, traits: Traits, end: int, bounds: Pace | None = None, workers: int = 1) -> str:
    """Good answers a second and errors a second over time, with what the provider takes at best."""
    seen = run(traits, [Adaptive(bounds=bounds) for _ in range(workers)], float(end))
    step = max(end // 120, 1)
    times = range(0, end, step)
    lines = [[(at, each.rate(at, at + step)) for at in times] for each in seen]
    bad = [
        (at, sum(count(e.refused, at, at + step) + count(e.failed, at, at + step) for e in seen) / step) for at in times
    ]
    whole = [(at, sum(line[place][1] for line in lines)) for place, at in enumerate(times)]
    best = bounds.most / traits.latency if bounds is not None else traits.takes(0.0)
    most = 1.15 * max(best, max(rate for _, rate in whole))

    def place(at: float, rate: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * at / end
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / most
        return f"{x:.1f},{y:.1f}"

    def path(points: list[tuple[int, float]], colour: str, width: float) -> str:
        route = " ".join(place(at, rate) for at, rate in points)
        return f'<polyline points="{route}" fill="none" stroke="{colour}" stroke-width="{width}"/>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="16" font-size="12" fill="#1f2937">{title}</text>',
        *_axes(end, most),
        path([(0, best), (end, best)], "#9ca3af", 1).replace("/>", ' stroke-dasharray="5 4"/>'),
        *([path(line, "#93c5fd", 1) for line in lines] if workers > 1 else []),
        path(whole, "#1d4ed8", 1.5),
        path(bad, "#dc2626", 1.2),
        _legend(workers),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _axes(end: int, most: float) -> Iterator[str]:
    bottom, height = HEIGHT - BOTTOM, HEIGHT - TOP - BOTTOM
    for n in range(5):
        x, at = LEFT + (WIDTH - LEFT - RIGHT) * n / 4, end * n // 4
        yield f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle" fill="#4b5563">{at} s</text>'
        y, rate = bottom - height * n / 4, most * n / 4
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e5e7eb"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#4b5563">{rate:.0f}</text>'


def _legend(workers: int) -> str:
    words = [("#1d4ed8", "good answers a second"), ("#dc2626", "429s and errors a second"), ("#9ca3af", "at best")]
    if workers > 1:
        words.append(("#93c5fd", "each worker"))
    found, x = [], LEFT
    for colour, text in words:
        found.append(f'<rect x="{x}" y="{HEIGHT - 12}" width="10" height="3" fill="{colour}"/>')
        found.append(f'<text x="{x + 14}" y="{HEIGHT - 7}" fill="#4b5563">{text}</text>')
        x += 26 + 6 * len(text)
    return "".join(found)
