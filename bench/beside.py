"""This tree beside another one, such as the last release: `python -m bench.beside /path/to/tree --runs 5`.

The other tree is a checkout in which `make setup` was run. Each run takes all measures in one tree, then in the other,
with that tree's own benchmark and packages; which of them comes first changes from run to run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.report import HEADINGS, table

HERE = Path(__file__).resolve().parent.parent
MEASURES = "bulk-put,single-put,drain-1,drain-2,latency,burst"
CONTENDERS = "duly,duly-sqlite"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.beside", description=__doc__)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--measures", default=MEASURES)
    parser.add_argument("--items", type=int, default=100_000)
    options = parser.parse_args()
    trees = {"before": options.tree.resolve(), "here": HERE}
    for tree in trees.values():
        if not (tree / ".venv" / "bin" / "python").exists():
            sys.exit(f"bench.beside: {tree} has no .venv; run make setup there")
    found: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for run in range(options.runs):
        for name in sorted(trees, reverse=run % 2 == 1):
            print(f"run {run + 1}/{options.runs}  {name}", flush=True)
            for measure, contender, figures in _taken(trees[name], options):
                for figure, value in figures.items():
                    rows = found.setdefault((measure, contender, figure), {tree: [] for tree in trees})
                    rows[name].append(value)
    for (measure, contender, figure), rows in found.items():
        print("\n".join([f"\n{measure}, {contender}: {HEADINGS.get(figure, figure)}", *table(rows)]))


def _taken(tree: Path, options: argparse.Namespace) -> list[tuple[str, str, dict[str, float]]]:
    """One run of the tree's own benchmark: measure, contender, figures."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "figures.json"
        command = [tree / ".venv" / "bin" / "python", "-m", "bench", "--runs", "1", "--peers", CONTENDERS]
        command += ["--measures", options.measures, "--items", str(options.items), "--json", written]
        subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL)
        results = json.loads(written.read_text())["results"]
    return [
        (measure, contender, runs[0]) for measure, by_name in results.items() for contender, runs in by_name.items()
    ]


if __name__ == "__main__":
    main()
