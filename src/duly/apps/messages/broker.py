"""Finds out whether a broker answers."""

from __future__ import annotations

import logging

PATIENCE = 2  # seconds


def lacking(error: ModuleNotFoundError) -> str:
    """The package that a missing module belongs to."""
    module = (error.name or "").partition(".")[0]
    return {"google": "protobuf"}.get(module, module)


def trouble(url: str) -> str | None:
    """What keeps us from this broker, in a line; None when it answers."""
    try:
        import pika

        parameters = pika.URLParameters(url)
        parameters.socket_timeout = parameters.stack_timeout = PATIENCE
        logging.getLogger("pika").setLevel(logging.CRITICAL)
        pika.BlockingConnection(parameters).close()
    except ModuleNotFoundError as error:
        return f"{lacking(error)} is not installed: pip install 'duly[rabbitmq]'"
    except Exception as error:  # pika has many ways to say that nobody is there
        from duly.bridge.link import words

        return f"it does not answer: {words(error)}"
    return None
