"""duly on SQLite: the same program, and a count that SQLite understands."""

from __future__ import annotations

from dataclasses import replace

from contract import obey
from duly_peer import PEER

if __name__ == "__main__":
    obey(replace(PEER, left="select count(*) from duly_item where state in ('waiting', 'running')"))
