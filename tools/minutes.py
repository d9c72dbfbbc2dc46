#!/usr/bin/env python3
"""Print where the minutes of the last test run went: by folder, by file, and the slowest tests.

    tools/minutes.py [JUNIT...]      of these junit files; without any, of the last run of tools/test

Seconds include set-up and clean-up. Tests run side by side, so their seconds add up to more than the run took.
Processor time is that of the test's own process and of the processes that it started and that ended, without servers
and browsers.
"""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

JUNITS = Path(__file__).resolve().parent.parent / ".scratch" / "junit"
MOST = 30  # files, and tests


def main():
    given = [Path(argument) for argument in sys.argv[1:]] or junits()
    if not given:
        sys.exit(f"tools/minutes.py: there is nothing in {JUNITS}; run tools/test first")
    cases = read(given)
    print_folders(cases)
    _print_sums("file", cases, lambda module, _: module.replace(".", "/") + ".py", MOST)
    _print_sums("test, with all its parameters", cases, _test, MOST)


def junits():
    """The files of the last run, one for each leg."""
    return sorted(JUNITS.glob("*.xml"))


def read(given):
    """The tests of these files: module, name, seconds, seconds of processor time."""
    cases = []
    for case in (case for junit in given for case in ElementTree.parse(junit).iter("testcase")):
        parts = [part for part in case.get("classname", "").split(".") if not part[:1].isupper()]  # without classes
        busy = [float(each.get("value")) for each in case.iter("property") if each.get("name") == "processor"]
        cases.append((".".join(parts), case.get("name", ""), float(case.get("time", 0)), sum(busy)))
    return cases


def print_folders(cases):
    _print_sums("folder", cases, lambda module, _: "/".join(module.split(".")[:2]))


def _test(module, name):
    return f"{module.replace('.', '/')}.py::{name.partition('[')[0]}"


def _print_sums(title, cases, key, most=None):
    seconds, processor, count = Counter(), Counter(), Counter()
    for module, name, taken, busy in cases:
        place = key(module, name)
        seconds[place] += taken
        processor[place] += busy
        count[place] += 1
    print(f"\nseconds  processor  tests  {title}")
    for place, taken in seconds.most_common(most):
        print(f"{taken:7.1f}  {processor[place]:9.1f}  {count[place]:5}  {place}", flush=True)
    print(f"{seconds.total():7.1f}  {processor.total():9.1f}  {count.total():5}  all", flush=True)


if __name__ == "__main__":
    main()
