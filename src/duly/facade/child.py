"""The program of a worker's child process: `python -m duly.facade.child SPEC READ_FD WRITE_FD`.

It imports the app that SPEC names, and runs its handlers for the worker at the other end of the two pipes.
"""

from __future__ import annotations

import os
import signal
import sys

from duly.engine.calls import Caller
from duly.engine.child import die_with_parent, serve
from duly.facade.loading import load_app
from duly.telemetry.logs import set_up_logs


def main() -> None:
    spec, read_fd, write_fd = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # Ctrl-C in a terminal goes to all processes, but the parent decides when this one ends. Signal handlers, because
    # SIG_IGN would be inherited by the processes that the user's code starts.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: None)
    die_with_parent()
    app = load_app(spec)
    set_up_logs(app.settings.log_level, app.settings.log_format)
    serve(
        app.task_named,
        lambda report: Caller(app.store, app.clock, app.telemetry, app.settings, report),
        os.fdopen(read_fd, "rb"),
        os.fdopen(write_fd, "wb"),
    )


if __name__ == "__main__":
    main()
