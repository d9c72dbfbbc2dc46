"""Decodes payloads for people to read, by the protobuf type that is configured for their queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from duly.core.errors import ConfigError


class Decoder:
    """`types`: which message type a queue holds, such as `orders=shop.Order,*=shop.Event`."""

    def __init__(self, path: str, types: str) -> None:
        self._path = path
        self._types: dict[str, str] = {}
        for each in filter(None, map(str.strip, types.split(","))):
            queue, is_there, name = each.partition("=")
            if not is_there or not queue.strip() or not name.strip():
                raise ConfigError(f"message_types: must be like orders=shop.Order, got {each!r}")
            self._types[queue.strip()] = name.strip()
        self._classes = self._load()

    def _load(self) -> dict[str, Any]:
        if not self._path or not self._types:
            return {}
        files = descriptor_pb2.FileDescriptorSet()
        pool = descriptor_pool.DescriptorPool()
        try:
            files.ParseFromString(Path(self._path).read_bytes())
            for file in files.file:
                pool.Add(file)
            return {
                name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
                for name in set(self._types.values())
            }
        except (OSError, DecodeError, TypeError) as error:
            raise ConfigError(f"message_descriptors: {self._path} cannot be used: {error}") from None
        except KeyError as error:
            raise ConfigError(f"message_types: {self._path} has no {error}") from None

    def decode(self, queue: str, payload: bytes) -> dict[str, Any] | None:
        """The payload as JSON of its type; None when the type is unknown, or the payload is of another."""
        found = self._classes.get(self._types.get(queue) or self._types.get("*", ""))
        if found is None:
            return None
        message = found()
        try:
            message.ParseFromString(payload)
            decoded: dict[str, Any] = json_format.MessageToDict(message)
        except Exception:  # a decoder may raise anything on bytes of another type
            return None
        return decoded
