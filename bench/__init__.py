"""duly and its peers side by side, on one private durable PostgreSQL and one machine.

`python -m bench --help` runs the comparison; `python -m bench.floor` shows what bare SQL reaches here.
"""
