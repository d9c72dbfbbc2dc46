"""What you need to test your own tasks: the real engine in virtual time, in one thread, without sleeping.

    from duly import testing
    from myshop import app, remind          # @app.task(retry=Backoff(base=60, tries=3)) def remind(phone: str): ...

    def test_a_busy_line_is_called_again_after_one_and_three_minutes():
        with testing.virtual(app) as world:
            placed = remind.put(phone="busy")
            assert world.run() == 1                       # the first try, now
            assert world.item(placed).state == "waiting"
            assert world.advance(minutes=3) == 2          # at 60 s and at 180 s, each at its exact time
            assert world.item(placed).state == "failed"   # three tries, given up: in review

Inside the block the app has its own empty SQLite store, and a clock that only the test moves. Items are claimed,
called, decided and settled by the same code that a worker runs, one after the other, so every run gives the same
result. Async handlers run on an event loop here, cpu handlers in this process. A handler takes no virtual time, unless
it moves `world.clock` itself.

A put with a `connection` of your own commits or rolls back with your transaction, and the world runs it once it is
committed. Your database gets a row of `duly_virtual_put` for it, which is never work.
"""

from duly.virtual.world import World, virtual

__all__ = ["World", "virtual"]
