"""Who takes part, in the order in which the tables list them: duly first, then the rest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PEERS = Path(__file__).resolve().parent / "peers"

# SQLite contenders take a file path where the others take a PostgreSQL DSN.
ON_SQLITE = {"huey", "duly-sqlite"}

AT_MOST = {"oban": 20_000, "procrastinate": 5_000}
# Among a million rows that stand by, some take seconds for each job.
AT_MOST_SEEDED = {"oban": 5_000, "procrastinate": 200}

DEFAULT_ORDER = ("duly", "bare", "pgqueuer", "pg-boss", "graphile", "oban", "procrastinate", "duly-sqlite", "huey")


@dataclass(frozen=True)
class Contender:
    """A name and the start of the command line that obeys peers/contract.py."""

    name: str
    command: tuple[str, ...]

    def share_of(self, items: int, is_seeded: bool = False) -> int:
        """How many of so many items this one gets: the slow ones settle on their rate with fewer."""
        return min(items, (AT_MOST_SEEDED if is_seeded else AT_MOST).get(self.name, items))

    @property
    def on_sqlite(self) -> bool:
        return self.name in ON_SQLITE


def contenders(peer_commands: dict[str, list[str]]) -> dict[str, Contender]:
    """Everyone who is present, in default order."""
    commands = dict(peer_commands)
    for name in ("duly", "duly-sqlite"):
        commands[name] = [str(REPOSITORY / ".venv/bin/python"), str(PEERS / f"{name.replace('-', '_')}_peer.py")]
    return {name: Contender(name, tuple(commands[name])) for name in DEFAULT_ORDER if name in commands}
