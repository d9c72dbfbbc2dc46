"""Messages to the broker, many at a time, each with a receipt: what became of it, as far as anybody can know.

Everything is mandatory and persistent, and nothing counts as sent before the broker has confirmed it. A broker answers
a bad message by closing the channel, and with it goes what else was on its way: such a window is sent again one by one,
so that the message at fault fails alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, Literal

from msgspec import Struct
from pika.exceptions import AMQPError

from duly.bridge.link import Link
from duly.bridge.properties import BadProperties, Encoded, Properties

# Tells the messages on their way apart when the broker returns one: ids of the sender's own may not be unique.
MARK = "x-duly-item"
# Seconds that a broker has to come back before its messages do, and to confirm what it was given. Nobody can know what
# became of a message that is never confirmed, so the second is long: it will be sent again, perhaps twice.
READY_WITHIN, CONFIRMED_WITHIN = 10.0, 60.0
# What a frame has beside the properties of its message.
FRAME_OVERHEAD = 32


class Outgoing(Struct, frozen=True):
    """A message for one queue. `mark` is unique among those on their way."""

    mark: int
    queue: str
    properties: Properties
    body: bytes


class Receipt(Struct, frozen=True):
    """confirmed: the broker has it. unroutable: no such queue. refused: neither broker nor protocol will ever have it.
    nacked: the broker cannot take it now. unknown: the connection broke first, so it may or may not be there.
    not_sent: there was nobody to send it to."""

    what: Literal["confirmed", "unroutable", "refused", "nacked", "unknown", "not_sent"]
    why: str = ""


CONFIRMED = Receipt("confirmed")
STOPPED = Receipt("not_sent", "the publisher stopped")


class _Window:
    """Messages that were handed over together, and what is known of them."""

    def __init__(self, messages: Sequence[Outgoing]) -> None:
        self.messages = messages
        self.receipts: list[Receipt | None] = [None] * len(messages)
        self.is_suspect = False  # the broker closed the channel over one of them
        self._left = len(messages)
        self._done = threading.Event()

    def tell(self, place: int, receipt: Receipt) -> None:
        if self.receipts[place] is None:
            self.receipts[place] = receipt
            self._left -= 1
            if not self._left:
                self._done.set()

    def tell_all(self, receipt: Receipt) -> None:
        for place in range(len(self.messages)):
            self.tell(place, receipt)

    def wait(self, seconds: float, is_held: Callable[[], bool]) -> list[Receipt]:
        """What became of them; the clock stands still while `is_held`."""
        step, left = 0.25, seconds
        while left > 0 and not self._done.wait(step):
            left -= 0 if is_held() else step
        late = Receipt("unknown", f"the broker did not confirm it within {seconds:g} seconds")
        return [receipt or late for receipt in self.receipts]


class Publisher:
    def __init__(self, url: str, name: str) -> None:
        self._channel: Any = None
        self._tag = 0
        self._handed: set[_Window] = set()  # given to the link's thread, which has not come to them yet
        self._under_way: dict[int, tuple[_Window, int]] = {}
        self._tags: dict[int, int] = {}  # by mark
        self._returned: dict[int, str] = {}  # by tag
        self._stopping = threading.Event()
        self.link = Link(url, name, self)

    def start(self) -> None:
        self.link.start()

    def stop(self) -> None:
        self._stopping.set()
        self.link.stop()

    def publish(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Send these and wait for what becomes of them. Waits for a while for a broker that is away or blocked."""
        give_up = time.monotonic() + READY_WITHIN
        while self.link.trouble() is not None or self._channel is None:
            if self._stopping.wait(0.05):
                return [STOPPED] * len(messages)
            if time.monotonic() > give_up:
                return [Receipt("not_sent", self.link.trouble() or "the channel is not ready")] * len(messages)
        window = self._send(messages)
        receipts = window.wait(CONFIRMED_WITHIN, self._is_held)
        if not window.is_suspect:
            return receipts
        return [
            receipt if receipt.what != "unknown" else self._send_alone(message)
            for message, receipt in zip(messages, receipts, strict=True)
        ]

    def _send_alone(self, message: Outgoing) -> Receipt:
        give_up = time.monotonic() + READY_WITHIN
        while self._channel is None and time.monotonic() < give_up and not self._stopping.wait(0.01):
            pass
        window = self._send([message])
        (receipt,) = window.wait(CONFIRMED_WITHIN, self._is_held)
        return Receipt("refused", receipt.why) if window.is_suspect else receipt

    def _is_held(self) -> bool:
        """Whether the broker reads nothing from us for now: what it was sent lies in the socket."""
        return self.link.is_blocked and self.link.is_open and not self._stopping.is_set()

    def _send(self, messages: Sequence[Outgoing]) -> _Window:
        window = _Window(messages)
        self._handed.add(window)
        if not self.link.call(lambda: self._publish(window)):
            self._handed.discard(window)
            window.tell_all(Receipt("not_sent", "the connection broke"))
        return window

    # -- on the link's thread

    def opened(self, channel: Any) -> None:
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._ready(channel))

    def _ready(self, channel: Any) -> None:
        self._tag = 0
        self._channel = channel

    def closed(self, reason: str, is_refusal: bool) -> None:
        self._channel = None
        lost, self._under_way = self._under_way, {}
        for window in list(self._handed):
            window.tell_all(Receipt("not_sent", reason))
        self._handed.clear()
        self._tags.clear()
        self._returned.clear()
        for window, place in lost.values():
            window.is_suspect = window.is_suspect or is_refusal
            window.tell(place, Receipt("unknown", reason))

    def _publish(self, window: _Window) -> None:
        if window not in self._handed:  # told to be not sent, for the channel closed first
            return
        self._handed.discard(window)
        for place, message in enumerate(window.messages):
            if self._channel is None or not self._channel.is_open or self.link.is_blocked:
                window.tell(place, Receipt("not_sent", self.link.trouble() or "the channel closed"))
                continue
            try:
                raw = message.properties.with_headers({MARK: message.mark}).raw()
                if len(raw) > self.link.frame_max - FRAME_OVERHEAD:
                    raise BadProperties("its headers are larger than a frame of the broker's")
                self._channel.basic_publish("", message.queue, message.body, Encoded(raw), mandatory=True)
            except ValueError as error:  # what cannot be written was not sent
                window.tell(place, Receipt("refused", str(error)))
                continue
            except AMQPError as error:
                window.tell(place, Receipt("not_sent", f"the channel closed: {error!r}"))
                continue
            self._tag += 1
            self._under_way[self._tag] = (window, place)
            self._tags[message.mark] = self._tag

    def _on_return(self, _: Any, method: Any, properties: Properties, body: bytes) -> None:
        tag = self._tags.get(properties.header(MARK) or 0)
        if tag is not None:
            self._returned[tag] = f"{method.reply_code} {method.reply_text}"

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        if method.multiple:
            tags = list(takewhile(lambda tag: tag <= method.delivery_tag, self._under_way))
        else:
            tags = [method.delivery_tag] if method.delivery_tag in self._under_way else []
        is_ack = method.NAME == "Basic.Ack"
        for tag in tags:
            window, place = self._under_way.pop(tag)
            self._tags.pop(window.messages[place].mark, None)
            returned = self._returned.pop(tag, None)
            if returned is not None:
                window.tell(
                    place, Receipt("unroutable", f"there is no queue {window.messages[place].queue!r}: {returned}")
                )
            elif is_ack:
                window.tell(place, CONFIRMED)
            else:
                window.tell(
                    place, Receipt("nacked", f"the broker cannot take it for {window.messages[place].queue!r} now")
                )
