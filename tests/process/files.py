"""An app that takes files, for workers that are killed while they read and work them off."""

from __future__ import annotations

import sys

from duly import Duly

app = Duly()


@app.task
def keep(n: str) -> dict[str, str]:
    return {"n": n}


@app.task
def report(job: dict[str, int]) -> dict[str, int]:
    return job


app.job_type("csv", keep)


if __name__ == "__main__":  # fill a job, in a process that may be killed: python -m tests.process.files KEY ROWS
    app.job(keep, ({"n": str(n)} for n in range(int(sys.argv[2]))), then=report, key=sys.argv[1])
