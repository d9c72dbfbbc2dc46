"""A port some milliseconds away from a server on this machine.

Bytes keep their order and their rate, and only the round trip grows. What holds beside the database may not hold at a
distance, so tests and benchmarks use it for everything that takes more than one round trip.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

CHUNK = 65_536


@contextmanager
def far(url: str, round_trip: float) -> Iterator[str]:
    """The URL under which the server of this URL is `round_trip` seconds away, until the end of the block."""
    parts = urlsplit(url)
    loop = asyncio.new_event_loop()
    target = (parts.hostname or "127.0.0.1", parts.port or 5432)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection(*target)
        except OSError:
            writer.close()
            return
        with suppress(asyncio.CancelledError):  # the end of the block
            await asyncio.gather(
                _forward(reader, there_writer, round_trip / 2), _forward(there_reader, writer, round_trip / 2)
            )

    server = loop.run_until_complete(asyncio.start_server(connect, "127.0.0.1", 0))
    port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, name="far", daemon=True)
    thread.start()
    user = f"{parts.username}@" if parts.username else ""
    try:
        yield urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{port}"))
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Pass on what one side sends; each chunk leaves this many seconds after it came."""
    leaving: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    async def send() -> None:
        with suppress(OSError):
            while True:
                leaves_at, data = await leaving.get()
                await asyncio.sleep(max(leaves_at - loop.time(), 0))
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        writer.close()

    sender = asyncio.create_task(send())
    try:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                leaving.put_nowait((loop.time() + delay, data))
        leaving.put_nowait((loop.time() + delay, b""))
        await sender
    finally:
        sender.cancel()
