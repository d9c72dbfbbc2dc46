"""The program of a worker's child process: `python -m duly.facade.child SPEC FD`.

It imports the app that SPEC names, and runs its handlers for the worker at the other end of the pipe.
"""

from __future__ import annotations

import signal
import sys
from multiprocessing.connection import Connection

from duly.engine.calls import Caller
from duly.engine.processes import die_with_parent, serve
from duly.facade.loading import load_app
from duly.telemetry.logs import set_up_logs


def main() -> None:
    spec, pipe = sys.argv[1], Connection(int(sys.argv[2]))
    # Ctrl-C in a terminal goes to all processes, but the parent decides when this one ends. Signal handlers, because
    # SIG_IGN would be inherited by the processes that the user's code starts.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: None)
    die_with_parent()
    app = load_app(spec)
    set_up_logs(app.settings.log_level, app.settings.log_format)
    serve(
        app.task_named,
        lambda report: Caller(app.internals.store, app.clock, app.internals.telemetry, app.settings, report),
        pipe,
    )


if __name__ == "__main__":
    main()
