"""How settings are declared: a section is a dataclass, each of whose fields has a default, a meaning and bounds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

from duly.core.errors import ConfigError
from duly.core.urls import web_address

# The largest values of settings: a century of seconds, and a whole number that any sum can hold.
MOST_NUMBER, MOST_WHOLE = 3.2e9, 10**12
_FIELD = re.compile(r"^[\w.]+: ")


def setting(
    default: Any,
    doc: str,
    alias: str | None = None,
    secret: bool = False,
    least: float | None = None,
    is_url: bool = False,
    check: Callable[[Any], object] | None = None,
) -> Any:
    """A field of a `Section`.

    The type of the default is the type of the value. `alias` is another name in the environment. A secret is masked
    wherever settings are shown. `least` is the smallest value that a number may have. With `is_url`, it must be a web
    address; nothing at all is allowed if that is the default. `check` raises a ValueError for a value that is wrong.
    """
    said = {"doc": doc, "alias": alias, "secret": secret, "least": least, "is_url": is_url, "check": check}
    return field(default=default, metadata=said)


@dataclass(frozen=True, kw_only=True)
class Section:
    """Settings that belong together: those of the core, or those of one app. Each field is made with `setting`."""

    PREFIX: ClassVar[str] = ""  # what the names of its settings begin with, such as sms_

    def __post_init__(self) -> None:
        for name, each in self.known().items():
            if problem := _problem(each, getattr(self, each.name)):
                raise ConfigError(f"{name}: {problem}")

    @classmethod
    def known(cls) -> dict[str, Field[Any]]:
        """Its fields by the names that people write."""
        return {f"{cls.PREFIX}{each.name}": each for each in fields(cls)}

    def shown(self) -> dict[str, Any]:
        """All values with secrets masked, for people and logs."""
        return {name: _masked(each, getattr(self, each.name)) for name, each in self.known().items()}


def _problem(each: Field[Any], value: Any) -> str | None:
    """What is wrong with the value of a setting, if anything is."""
    if type(each.default) is int and type(value) is not int:
        return f"must be a whole number, got {value!r:.40}"
    least = each.metadata["least"]
    if least is not None and not value >= least:
        return f"must be at least {least}, got {value}"
    if isinstance(each.default, int | float) and not isinstance(each.default, bool):
        most = MOST_NUMBER if isinstance(each.default, float) else MOST_WHOLE
        if not value <= most:
            return f"must be at most {most:,.0f}, got {value}"
    if each.metadata["is_url"] and value != each.default:
        try:
            web_address(value)
        except ValueError as error:
            return str(error) if "@" in value else f"{error}, got {value!r:.200}"  # not the password
    if (check := each.metadata["check"]) is not None:
        try:
            check(value)
        except (ValueError, TypeError) as error:
            return _FIELD.sub("", str(error))  # a policy names its own field first
    return None


def _masked(each: Field[Any], value: Any) -> Any:
    if not each.metadata["secret"] or not value:
        return value
    return without_password(value) if "://" in value else "***"


def without_password(url: str) -> str:
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))
