"""A connection to the broker in its own thread, which reconnects whenever it breaks.

pika does the handshake, TLS, heartbeats and frames. Connections and channels are used only on the link's own thread;
other threads use `call` to run something there. What is done with a channel is for `Consumer` and `Publisher` to say,
which are links.
"""

from __future__ import annotations

import logging
import random
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pika
from pika import exceptions, frame

from duly.bridge.properties import BadProperties, Properties, parse
from duly.core.errors import ConfigError

log = logging.getLogger("duly.bridge")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
FORCED = 320  # the broker shuts down or a person closed the connection, so it was not our fault
HEARTBEAT = 10  # seconds; twice as much silence and the connection counts as dead


class BrokerConnection(pika.SelectConnection):  # type: ignore[misc]
    """A connection of pika's that keeps the properties of messages as bytes, without decoding them."""

    def _read_frame(self) -> Any:
        data = self._frame_buffer
        if data[:1] != b"\x02" or len(data) < 7:
            return super()._read_frame()
        channel, size = struct.unpack_from(">HI", data, 1)
        end = 7 + size + 1
        if end > len(data):
            return 0, None
        if data[end - 1 : end] != b"\xce" or size < 14:
            raise exceptions.InvalidFrameError("a header frame is cut short")
        _, _, body_size = struct.unpack_from(">HHQ", data, 7)
        try:
            properties = parse(bytes(data[19 : end - 1]))
        except BadProperties as error:
            properties = Properties(problem=str(error))
        return end, frame.Header(channel, body_size, properties)


class Link:
    def __init__(self, url: str, name: str) -> None:
        if not url.startswith(("amqp://", "amqps://")):
            raise ConfigError("rabbitmq_url: must begin with amqp:// or amqps://")
        try:
            self._parameters = pika.URLParameters(url)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"rabbitmq_url: cannot be read: {type(error).__name__}") from None
        self._parameters.client_properties = {"connection_name": name}
        if "heartbeat" not in url:
            self._parameters.heartbeat = HEARTBEAT
        self.name = name
        self.where = f"{self._parameters.host}:{self._parameters.port}"
        self._lock = threading.Lock()
        self._connection: Any = None
        self._channel: Any = None
        self.is_open = False
        self._blocked: str | None = None
        self._trouble = "not connected yet"
        self._stopping = threading.Event()
        self._pause = FIRST_PAUSE
        self._opened_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"duly-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Close the connection in good order, and end the thread."""
        self._stopping.set()
        self.call(self._close)
        self._thread.join(5)

    def trouble(self) -> str | None:
        """What keeps messages from being sent and received, in a few words; None when nothing does."""
        if not self.is_open:
            return f"no connection to the broker at {self.where}: {self._trouble}"
        return None if self._blocked is None else f"the broker at {self.where} accepts no messages: {self._blocked}"

    @property
    def is_blocked(self) -> bool:
        return self._blocked is not None

    @property
    def frame_max(self) -> int:
        connection = self._connection
        return int(connection.params.frame_max) if connection is not None else 131_072

    def call(self, act: Callable[[], None]) -> bool:
        """Run this on the link's thread; False when there is no connection.

        Even after True it may never run, if the connection breaks first; then `closed` is called.
        """
        with self._lock:
            if self._connection is None:
                return False
            self._connection.ioloop.add_callback_threadsafe(act)
            return True

    def reopen(self) -> None:
        """Close the channel and open another, so that unacknowledged messages go back to their queue."""
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    # -- on the link's thread

    def opened(self, channel: Any) -> None:
        """A channel is open."""

    def closed(self, reason: str, is_refusal: bool) -> None:
        """The channel is closed. `is_refusal`: by the broker, because of something that was done on it."""

    def another_channel(self, use: Callable[[Any], None], refused: Callable[[], None]) -> None:
        """Open a channel for something that may fail; `refused` is called if the broker closes it because of that."""

        def begin(channel: Any) -> None:
            channel.add_on_close_callback(over)
            use(channel)

        def over(_: Any, reason: Exception) -> None:
            if isinstance(reason, exceptions.ChannelClosedByBroker):
                refused()

        self._connection.channel(on_open_callback=begin)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                connection = BrokerConnection(
                    self._parameters,
                    on_open_callback=self._on_open,
                    on_open_error_callback=self._on_no_connection,
                    on_close_callback=self._on_no_connection,
                )
                connection.add_on_connection_blocked_callback(self._on_blocked)
                connection.add_on_connection_unblocked_callback(self._on_unblocked)
                with self._lock:
                    self._connection = connection
                if not self._stopping.is_set():
                    connection.ioloop.start()
            except Exception as error:  # the next connection may work
                log.exception("the connection to %s broke", self.where)
                self._lose(error)
            with self._lock:
                connection, self._connection = self._connection, None
            self.closed(self._trouble, False)  # also for what was passed to `call` at the last moment
            _abandon(connection)
            self._stopping.wait(self._next_pause())

    def _next_pause(self) -> float:
        """Seconds until the next try. They grow with each, and start over after a connection that lasted a while."""
        if time.monotonic() - self._opened_at > LONGEST_PAUSE:
            self._pause = FIRST_PAUSE
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        self._opened_at = time.monotonic()
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load

    def _on_open(self, connection: Any) -> None:
        self._blocked = None
        self._open_channel()

    def _open_channel(self) -> None:
        if self._connection is not None and self._connection.is_open:
            self._connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_channel_closed)
        self._opened_at = time.monotonic()
        self.is_open = True
        log.info("%s: connected to %s", self.name, self.where)
        self.opened(channel)

    def _on_channel_closed(self, channel: Any, reason: Exception) -> None:
        is_refusal = isinstance(reason, exceptions.ChannelClosedByBroker)
        if channel is self._channel:
            self._lose(reason, is_refusal)
        if self._connection is not None and self._connection.is_open and not self._stopping.is_set():
            # The connection still works. Wait before the next channel, which may be closed for the same reason.
            self._connection.ioloop.call_later(self._next_pause(), self._open_channel)

    def _on_no_connection(self, connection: Any, reason: Exception) -> None:
        is_closed_over = isinstance(reason, exceptions.ConnectionClosedByBroker) and reason.reply_code != FORCED
        self._lose(reason, is_closed_over)
        connection.ioloop.stop()

    def _lose(self, reason: BaseException, is_refusal: bool = False) -> None:
        was_open, before = self.is_open, self._trouble
        self.is_open = False
        self._channel = None
        self._trouble = words(reason)
        if (was_open or self._trouble != before) and not self._stopping.is_set():
            log.warning("%s: no connection to %s: %s", self.name, self.where, self._trouble)
        if was_open:
            self.closed(self._trouble, is_refusal)

    def _on_blocked(self, _: Any, method: Any) -> None:
        self._blocked = str(method.method.reason or "blocked")
        log.warning("%s: %s accepts no messages: %s", self.name, self.where, self._blocked)

    def _on_unblocked(self, *_: Any) -> None:
        self._blocked = None
        log.info("%s: %s accepts messages again", self.name, self.where)

    def _close(self) -> None:
        connection = self._connection
        if connection is not None and connection.is_open:
            connection.close()
        elif connection is not None:
            connection.ioloop.stop()


def _abandon(connection: Any) -> None:
    """Free the resources of a connection, however it ended."""
    if connection is not None:
        with suppress(Exception):
            if connection._transport is not None and not connection.is_closed:
                connection._transport.abort()
        with suppress(Exception):
            connection.ioloop.close()


def words(reason: BaseException) -> str:
    """The text of an error of pika's. Some have no text but their class, and some contain others, the last one last."""
    inner = (*getattr(reason, "exceptions", ()), getattr(reason, "exception", None), *reason.args)
    causes = [each for each in inner if isinstance(each, BaseException)]
    if causes:
        return words(causes[-1])
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror.lower()
    text, name = str(reason).strip(), type(reason).__name__
    return f"{name}: {text}"[:300] if text and text != name else name
