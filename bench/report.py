"""Turns the figures of several runs into aligned tables: median, spread, ratio to the first contender."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from bench.contenders import Contender

# measure -> contender -> one dict of figures per run
Results = dict[str, dict[str, list[dict[str, float]]]]

HEADINGS = {
    "rate": "per second",
    "p50": "p50, ms",
    "p99": "p99, ms",
    "cpu": "CPU seconds, worker and PostgreSQL",
    "transactions_per_minute": "transactions per minute",
    "cpu_per_minute": "worker CPU seconds per minute",
    "rss_mb": "worker RSS, MB",
    "all_started": "seconds until all had started",
}


def tables(results: Results, everyone: Iterable[Contender]) -> str:
    """One table per measure and figure; PostgreSQL and SQLite contenders never share one."""
    parts = []
    for on_sqlite in (False, True):
        names = [contender.name for contender in everyone if contender.on_sqlite == on_sqlite]
        for measure, by_name in results.items():
            for figure, heading in HEADINGS.items():
                rows = {
                    name: [run[figure] for run in by_name[name] if figure in run] for name in names if name in by_name
                }
                rows = {name: values for name, values in rows.items() if values}
                if rows:
                    title = f"{measure}{' on SQLite' if on_sqlite else ''}: {heading}"
                    parts.append("\n".join([title, *table(rows)]))
    return "\n\n".join(parts)


def table(rows: dict[str, list[float]]) -> list[str]:
    first = median(next(iter(rows.values())))
    width = max(len(name) for name in rows)
    lines = [f"  {'':{width}}  {'median':>9}  {'min - max':>21}  ratio"]
    for name, values in rows.items():
        middle = median(values)
        spread = f"{short(min(values))} - {short(max(values))}"
        ratio = f"{middle / first:5.2f}" if first else "    -"
        lines.append(f"  {name:{width}}  {short(middle):>9}  {spread:>21}  {ratio}")
    return lines


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
