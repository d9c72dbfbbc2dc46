"""Random providers: what the pace reaches, compared with the best constant pace for each of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from multiprocessing import Pool
from statistics import mean

from msgspec import Struct
from msgspec.structs import replace

from bench.pace.provider import Traits, random_traits
from bench.pace.virtual import Adaptive, best_constant, count, run

SETTLED = 240.0  # seconds after the start from which a pace is compared
LONG = 360.0  # seconds for which it is
BACK = 15.0  # seconds after an outage
REFUSING = ("tokens", "window", "slots")


class Scenario(Struct, frozen=True):
    name: str
    aim: float
    workers: int = 1
    errors: float = 0.0
    outage: float = 0.0
    changes: bool = False
    is_refusing: bool = False  # only providers that answer 429


SCENARIOS = (
    Scenario("429 limits", 0.9, is_refusing=True),
    Scenario("0.1 % errors", 0.85, errors=0.001),
    Scenario("1 % errors", 0.85, errors=0.01),
    Scenario("5 % errors", 0.85, errors=0.05),
    Scenario("an outage of 5 s", 0.8, outage=5.0),
    Scenario("an outage of 60 s", 0.8, outage=60.0),
    Scenario("an outage of 600 s", 0.8, outage=600.0),
    Scenario("a change at noon", 0.9, changes=True),
    Scenario("2 workers, 429 limits", 0.9, workers=2, is_refusing=True),
    Scenario("4 workers, 429 limits", 0.9, workers=4, is_refusing=True),
    Scenario("8 workers, 429 limits", 0.9, workers=8, is_refusing=True),
)


class Found(Struct, frozen=True):
    scenario: Scenario
    traits: Traits
    part: float  # of the best constant pace
    refused: float  # share of calls
    failed: float
    fairness: float  # Jain's index over the workers
    probes: int  # calls that began in the outage


def draw(scenario: Scenario, number: int) -> Traits:
    chance = random.Random(f"{scenario.name} {number}")
    while True:
        traits = random_traits(
            chance, errors=scenario.errors, outage=scenario.outage, noon=600.0 if scenario.changes else 1e12
        )
        # With fewer places than workers, a constant pace is the only one that can share them.
        fits = not traits.slots or traits.slots * (traits.change if scenario.changes else 1.0) >= scenario.workers
        if fits and (traits.kind in REFUSING or not scenario.is_refusing):
            return traits


def compare(task: tuple[Scenario, int]) -> Found:
    scenario, number = task
    traits = draw(scenario, number)
    start, end = SETTLED, SETTLED + LONG
    if traits.outage is not None:
        # A call that hangs shows that the provider is back only when it times out.
        start = traits.outage.end + BACK + (traits.patience() if traits.outage.hangs else 0.0)
        end = start + 60.0
    elif scenario.changes:
        start, end = traits.noon + 120.0, traits.noon + 420.0
    seen = run(traits, [Adaptive() for _ in range(scenario.workers)], end)
    begin = start if scenario.changes else SETTLED
    _, best = best_constant(replace(traits, outage=None), begin, begin + max(60.0, 200 / traits.takes(end)))
    begun = max(sum(count(each.begun, start, end) for each in seen), 1)
    rates = [each.rate(start, end) for each in seen]
    outage = traits.outage
    return Found(
        scenario,
        traits,
        sum(rates) / best,
        sum(count(each.refused, start, end) for each in seen) / begun,
        sum(count(each.failed, start, end) for each in seen) / begun,
        sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates)) if any(rates) else 0.0,
        0 if outage is None else sum(count(each.begun, outage.start, outage.end) for each in seen),
    )


def sweep(providers: int, processes: int) -> Iterator[tuple[Scenario, list[Found]]]:
    """So many providers in all, the same number for each scenario, and one after another in the order of these."""
    each = -(-providers // len(SCENARIOS))
    with Pool(processes) as pool:
        for scenario in SCENARIOS:
            yield scenario, pool.map(compare, [(scenario, number) for number in range(each)], chunksize=1)


HEADING = (
    "| scenario | aim | mean | a tenth is below | least | reach the aim | 429s, mean and most | fairness | probes |"
    "\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def line(scenario: Scenario, found: list[Found]) -> str:
    parts = sorted(each.part for each in found)
    reached = sum(part >= scenario.aim for part in parts)
    refused = [each.refused for each in found]
    probes = f"{max(each.probes for each in found)}" if scenario.outage else ""
    fairness = f"{min(each.fairness for each in found):.2f}" if scenario.workers > 1 else ""
    return (
        f"| {scenario.name} | {scenario.aim} | {mean(parts):.2f} | {parts[len(parts) // 10]:.2f} | {parts[0]:.2f} |"
        f" {reached} of {len(parts)} | {mean(refused):.1%}, {max(refused):.1%} | {fairness} | {probes} |"
    )
