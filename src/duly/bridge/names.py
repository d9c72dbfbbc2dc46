"""Checks names of queues, exchanges and messages. It needs no client library, so that settings can be checked."""

from __future__ import annotations

import re
from uuid import UUID

NAME_LIMIT = 255  # bytes that the name of a queue or an exchange, or a routing key, has at most
ID_LIMIT = 200  # characters of a message's id

_UUID = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")
_ID = re.compile(rf"[^\s\x00-\x1f\x7f]{{1,{ID_LIMIT}}}")


def queue_problem(name: str) -> str | None:
    """Why no queue can have this name; None when one can."""
    return "must not be empty" if not name else text_problem(name)


def text_problem(name: str) -> str | None:
    """Why the protocol has no room for this name; None when it has."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "must be valid Unicode"
    if size > NAME_LIMIT:
        return f"has {size:,} bytes; {NAME_LIMIT} is the limit"
    if "\x00" in name:
        return "must not contain NUL characters"
    return None


def message_id_of(given: str) -> str | None:
    """The id in its stored form: a UUID in its usual form, any other id unchanged; None if it is not valid.

    Ids have no spaces, because keys of messages are an id and a queue with a space between them.
    """
    if _UUID.fullmatch(given):
        return str(UUID(given))
    try:
        given.encode()
    except UnicodeEncodeError:
        return None
    return given if _ID.fullmatch(given) else None
