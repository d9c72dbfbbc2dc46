"""A process that forks after it has used the database, while threads of its own go on using it; prints how it ended.

`python -m tests.process.forker URL busy|quiet|inside`
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time

from duly import Duly
from duly.core.errors import StoreError

CHILDREN = 8
PUTS = 10
PATIENCE = 60.0


def main(url: str, how: str) -> None:
    app = Duly(url)

    @app.task
    def parents() -> None: ...

    @app.task
    def childrens() -> None: ...

    app.put("parents")
    over = threading.Event()
    puts = [0] * 4

    def put_on(place: int) -> None:
        while not over.is_set():
            app.put("parents")
            app.read.page(most=1)
            puts[place] += 1

    threads = [threading.Thread(target=put_on, args=(place,)) for place in range(len(puts))]
    if how != "inside":
        for thread in threads if how == "busy" else ():
            thread.start()
        children = [fork(app) for _ in range(CHILDREN)]
    else:
        with app.internals.store.transaction() as connection:
            connection.execute("update duly_item set rank = 5")
            children = [fork(app)]
            codes = [end_of(child) for child in children]
        # What the child did with the connection that it inherited, its end included, is nothing to this one.
        with app.internals.store.transaction() as connection:
            ranks = connection.execute("select distinct rank from duly_item where task = 'parents'").fetchall()
        print(json.dumps({"codes": codes, "ranks": [list(row) for row in ranks]}))
        return
    codes = [end_of(child) for child in children]
    over.set()
    for thread in threads if how == "busy" else ():
        thread.join(PATIENCE)
    print(json.dumps({"codes": codes, "puts": 1 + sum(puts)}))
    app.close()


def fork(app: Duly) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        for _ in range(PUTS):
            app.put("childrens")
        assert app.read.page(task="childrens", most=1)
        app.close()
    except StoreError as error:
        print(error, file=sys.stderr)
        sys.exit(3)
    sys.exit(0)


def end_of(child: int) -> int | str:
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGABRT)  # it prints where it hangs
    os.waitpid(child, 0)
    return "hung"


if __name__ == "__main__":
    faulthandler.enable()
    main(sys.argv[1], sys.argv[2])
