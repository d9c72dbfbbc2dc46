"""Publishes messages, many at a time, and returns a receipt with the result of each.

All messages are mandatory and persistent, and none counts as sent before the broker has confirmed it. The broker
answers a bad message by closing the channel, and the fate of the others that were on their way is unknown. Then all of
them are sent again one by one, so that the bad message fails alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Literal

from msgspec import Struct
from pika.exceptions import AMQPError
from pika.spec import Basic

from duly.bridge.link import Link
from duly.bridge.properties import BadProperties, Encoded, Properties

log = logging.getLogger("duly.bridge")

# A header that identifies a message when the broker returns it; the sender's message ids may not be unique.
MARK = "x-duly-item"
# Seconds to wait for an unreachable broker, and for its confirms: a queue that confirms nothing must not hold up the
# others for longer. A message that is tried again while it is still unconfirmed is not sent a second time.
READY_WITHIN, CONFIRMED_WITHIN = 10.0, 10.0
# Bytes of a frame in addition to the properties of its message.
FRAME_OVERHEAD = 32
# A search ends after this many messages, and after this many bytes.
SEARCHED, SEARCHED_BYTES = 1_000, 16 * 1024 * 1024
# A quorum queue counts how often a message was handed out, and drops it when a limit is reached, which may be 20.
MOST_DELIVERIES = 10


class Outgoing(Struct, frozen=True):
    """A message for one queue, or for an exchange. `mark` is unique among all messages on their way."""

    mark: int
    queue: str  # or the routing key, if there is an exchange
    properties: Properties
    body: bytes
    exchange: str = ""

    @property
    def where(self) -> str:
        return f"{self.queue!r} at exchange {self.exchange!r}" if self.exchange else repr(self.queue)


class Receipt(Struct, frozen=True):
    """confirmed: the broker has it. unroutable: no such queue. refused: the broker or the protocol will never accept
    it. nacked: the broker cannot accept it now. unknown: the connection broke before the answer, so the broker may
    have it. not_sent: it was not sent, and can be sent again."""

    what: Literal["confirmed", "unroutable", "refused", "nacked", "unknown", "not_sent"]
    why: str = ""


CONFIRMED = Receipt("confirmed")


class _Window:
    """Messages that were published together, and what is known of them."""

    def __init__(self, messages: Sequence[Outgoing]) -> None:
        self.messages = messages
        self.receipts: list[Receipt | None] = [None] * len(messages)
        self.is_suspect = False  # the broker closed the channel while these were on their way
        self.is_guilty = False  # it did so while nothing else was on its way
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
        """Wait for the receipts; time during which `is_held()` is true does not count."""
        step, left = 0.25, seconds
        while left > 0 and not self._done.wait(step):
            left -= 0 if is_held() else step
        late = Receipt("unknown", f"the broker did not confirm it within {seconds:g} seconds")
        return [receipt or late for receipt in self.receipts]


ReceiptPlace = tuple[_Window, int]


class Publisher(Link):
    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name)
        self._confirming: Any = None  # the channel, once it confirms what is published on it
        self._tag = 0
        self._handing = threading.Lock()
        self._alone = threading.Lock()
        self._handed: set[_Window] = set()  # passed to the link's thread, which has not published them yet
        # Messages on their way by delivery tag, with the places of their receipts; and the tag of each mark.
        self._under_way: dict[int, tuple[Outgoing, list[ReceiptPlace]]] = {}
        self._tags: dict[int, int] = {}
        self._returned: dict[int, str] = {}  # by tag

    def publish(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Publish these and wait for their receipts. Waits for a while if the broker is down or blocked."""
        if not self._is_ready():
            why = "the publisher stopped" if self._stopping.is_set() else self.trouble()
            return [Receipt("not_sent", why or "the channel is not ready")] * len(messages)
        window = self._send(messages)
        receipts = window.wait(CONFIRMED_WITHIN, self._is_held)
        if not window.is_suspect:
            return receipts
        with self._alone:
            return [
                receipt if receipt.what != "unknown" else self._send_alone(message)
                for message, receipt in zip(messages, receipts, strict=True)
            ]

    def _send_alone(self, message: Outgoing) -> Receipt:
        """Send one message until it is delivered or proves to be bad itself; others may close its channel too."""
        receipt = Receipt("unknown", "others closed the channel")
        for _ in range(5):
            if not self._is_ready():
                return receipt
            window = self._send([message])
            (receipt,) = window.wait(CONFIRMED_WITHIN, self._is_held)
            if window.is_guilty:
                return Receipt("refused", receipt.why)
            if not window.is_suspect:
                break
        return receipt

    def _is_ready(self) -> bool:
        """Wait a while for a channel to publish on; returns whether there is one."""
        give_up = time.monotonic() + READY_WITHIN
        while self.trouble() is not None or self._confirming is None:
            if self._stopping.wait(0.02) or time.monotonic() > give_up:
                return False
        return not self._stopping.is_set()

    def _is_held(self) -> bool:
        """Whether the broker has stopped reading from us, so that what we send stays in the socket."""
        return self.is_blocked and self.is_open and not self._stopping.is_set()

    def _send(self, messages: Sequence[Outgoing]) -> _Window:
        window = _Window(messages)
        with self._handing:
            self._handed.add(window)
        if not self.call(lambda: self._publish(window)):
            with self._handing:
                self._handed.discard(window)
            window.tell_all(Receipt("not_sent", "the connection broke"))
        return window

    def withdraw(self, queue: str, mark: int) -> None:
        """Take the message with this mark out of a queue, if it is found there soon; returns at once."""
        search = partial(_take_out, queue=queue, header=MARK, value=mark)
        self.call(lambda: self.another_channel(search, lambda: None))

    # -- on the link's thread

    def opened(self, channel: Any) -> None:
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._ready(channel))

    def _ready(self, channel: Any) -> None:
        self._tag = 0
        self._confirming = channel

    def closed(self, reason: str, is_refusal: bool) -> None:
        self._confirming = None
        with self._handing:
            handed, self._handed = self._handed, set()
        for window in handed:
            window.tell_all(Receipt("not_sent", reason))
        lost, self._under_way = self._under_way, {}
        self._tags.clear()
        self._returned.clear()
        for _, places in lost.values():
            for window, place in places:
                window.is_suspect = window.is_suspect or is_refusal
                window.is_guilty = is_refusal and len(lost) == 1
                window.tell(place, Receipt("unknown", reason))

    def _publish(self, window: _Window) -> None:
        with self._handing:
            if window not in self._handed:  # the channel was closed first, and they count as not sent
                return
            self._handed.discard(window)
        for place, message in enumerate(window.messages):
            receipt = self._publish_one(message, (window, place))
            if receipt is not None:
                window.tell(place, receipt)

    def _publish_one(self, message: Outgoing, place: ReceiptPlace) -> Receipt | None:
        """Publish one message. Returns a receipt if what becomes of it is known already, or None."""
        if self._confirming is None or not self._confirming.is_open or self.is_blocked or self._stopping.is_set():
            return Receipt("not_sent", self.trouble() or "the channel closed")
        if (pending := self._tags.get(message.mark)) is not None:
            # An earlier try is still unconfirmed, so wait for that instead of sending it twice.
            earlier, places = self._under_way[pending]
            if earlier != message:
                return Receipt("not_sent", "an earlier form of it is still on its way")
            places.append(place)
            return None
        try:
            raw = message.properties.with_headers({MARK: message.mark}).raw()
            if len(raw) > self.frame_max - FRAME_OVERHEAD:
                raise BadProperties("its headers are larger than a frame of the broker's")
            self._confirming.basic_publish(message.exchange, message.queue, message.body, Encoded(raw), mandatory=True)
        except ValueError as error:  # it cannot be encoded, so it was not sent
            return Receipt("refused", str(error))
        except AMQPError as error:
            return Receipt("not_sent", f"the channel closed: {error!r}")
        self._tag += 1
        self._under_way[self._tag] = (message, [place])
        self._tags[message.mark] = self._tag
        return None

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
            message, places = self._under_way.pop(tag)
            del self._tags[message.mark]
            returned = self._returned.pop(tag, None)
            if returned is not None:
                receipt = Receipt("unroutable", f"there is no queue {message.where}: {returned}")
            elif is_ack:
                receipt = CONFIRMED
            else:
                receipt = Receipt("nacked", f"the broker cannot take it for {message.where} now")
            for window, place in places:
                window.tell(place, receipt)


def _take_out(channel: Any, queue: str, header: str, value: int) -> None:
    """Search on this channel, which is closed afterwards, for the message whose header has this value.

    A broker delivers messages from the head of a queue only. So they are taken one by one, without acknowledging them,
    until the message that is looked for has come, which is acknowledged. Closing the channel requeues all others. A
    classic queue puts them back in their places. A quorum queue keeps them at its head, but not always in their order.
    """
    messages = size = 0

    def on_message(_: Any, method: Any, properties: Properties, body: bytes) -> None:
        nonlocal messages, size
        if properties.header(header) == value:
            channel.basic_ack(method.delivery_tag)
            end()
            return
        messages, size = messages + 1, size + len(body)
        count = properties.header("x-delivery-count")
        is_worn = isinstance(count, int) and count >= MOST_DELIVERIES
        if is_worn or messages >= SEARCHED or size >= SEARCHED_BYTES:
            log.info("stopped searching for the copy of message %s in %s", value, queue)
            end()
        else:
            channel.basic_get(queue, on_message)

    def end(*_: Any) -> None:
        if channel.is_open:
            channel.close()

    channel.add_callback(end, [Basic.GetEmpty])
    channel.basic_get(queue, on_message)
