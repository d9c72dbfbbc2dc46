"""An app that takes files, for workers that are killed while they read and work them off."""

from __future__ import annotations

from duly import Duly

app = Duly()


@app.task
def keep(n: str) -> dict[str, str]:
    return {"n": n}


app.job_type("csv", keep)
