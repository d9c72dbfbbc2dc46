"""The bodies of requests and answers, in camelCase. Strings are bounded, without characters that a database rejects.

Models of answers are made from structs with `out`. This file has what routes share, those of apps too; bodies of one
topic only are beside the routes of that topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import date, datetime
from functools import cache, reduce
from inspect import Parameter, Signature
from operator import or_
from types import UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args, get_origin

from fastapi import Path, Query
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    create_model,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from duly.core import codec
from duly.core.errors import InputError
from duly.core.results import DateField
from duly.core.wire import Doc
from duly.tasks.checks import YEARS
from duly.verbs.context import SELECTED

BIG = 2**63 - 1

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


def clean(text: str) -> str:
    """The text, if every database can store it; raises otherwise."""
    if "\x00" in text:
        raise ValueError("must not contain NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode") from None
    return text


def _from_text(kind: type[date]) -> BeforeValidator:
    """Reads a date or a time from ISO 8601 text, and from nothing else: a number is not taken as seconds since 1970."""

    def read(given: Any) -> date:
        try:
            return kind.fromisoformat(given)
        except (TypeError, ValueError):
            raise PydanticCustomError(kind.__name__, "{}") from None

    return BeforeValidator(read)


def _shallow(args: dict[str, Any]) -> dict[str, Any]:
    """These arguments, if none is nested too deeply; raises otherwise, as `codec.check` does."""
    for name, value in args.items():
        level: list[Any] = [[value]]
        for _ in range(codec.DEPTH):
            inside = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
            level = [inner for inner in inside if isinstance(inner, dict | list)]
        if level:
            raise InputError(name, f"must not be nested more than {codec.DEPTH} levels deep")
    return args


def _sane(moment: datetime) -> datetime:
    if moment.year not in YEARS:
        raise ValueError(f"must lie between the years {YEARS[0]} and {YEARS[-1]}")
    return moment


Word = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(clean)]
Sentence = Annotated[str, StringConstraints(max_length=2_000), AfterValidator(clean)]
Key = Annotated[str, StringConstraints(min_length=1, max_length=500), AfterValidator(clean)]
Args = Annotated[dict[str, Any], AfterValidator(_shallow)]
Rule = Annotated[str, StringConstraints(min_length=1, max_length=1_000), AfterValidator(clean)]
Password = Annotated[str, StringConstraints(min_length=8, max_length=1_024), AfterValidator(clean)]
Moment = Annotated[AwareDatetime, _from_text(datetime), AfterValidator(_sane)]
Date = Annotated[date, _from_text(date)]
Seconds = Annotated[float, Field(ge=0, le=3e9)]
Rank = Annotated[int, Field(ge=-100, le=100)]
Tries = Annotated[int, Field(ge=1, le=1_000_000)]
RowId = Annotated[int, Field(ge=1, le=BIG)]

Id = Annotated[int, Path(ge=1, le=BIG)]
Name = Annotated[str, Path(min_length=1, max_length=200), AfterValidator(clean)]
GroupId = Annotated[str, Path(pattern=r"^[0-9a-f]{1,64}$")]
PageSize = Annotated[int, Query(alias="pageSize", ge=1, le=500)]
After = Annotated[str | None, Query(max_length=2_000, description="`next` of the page before.")]
WordFilter = Annotated[Word | None, Query()]


def example(**values: Any) -> ConfigDict:
    """The part of a model's configuration that shows an example body in the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [values]})


class Model(BaseModel):
    """The body of a request. Values must have the types of JSON: no number is read from text, true is not 1."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, from_attributes=True, extra="forbid", allow_inf_nan=False,
        strict=True,
    )  # fmt: skip

    def changes(self) -> dict[str, Any]:
        """The given fields of an edit, at least one."""
        given = {name: value for name in self.model_fields_set if (value := getattr(self, name)) is not None}
        if not given:
            raise InputError("body", "must have at least one field to change")
        return given


class Selection(Model):
    """Several rows that are changed in one transaction: all of them, or none."""

    ids: list[int] = Field(min_length=1, max_length=SELECTED)
    skip: bool = Field(
        default=False, description="Leave rows that cannot be changed as they are, and change the others."
    )


class ReasonIn(Model, **example(reason="ordered twice")):
    reason: Sentence = ""


class FilterIn(Model, **example(state="failed", task="http")):
    """Which items are listed, or changed by an act."""

    state: Annotated[str, StringConstraints(max_length=100)] | None = Field(
        default=None, description="One or more states, separated by commas."
    )
    task: Word | None = None
    queue: Word | None = None
    key: Key | None = None
    error_group: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,64}$")] | None = None
    schedule_id: RowId | None = None
    job_id: RowId | None = None
    error: Word | None = Field(default=None, description="A part of the last error, ignoring case.")
    min_tries: Tries | None = None
    date_field: DateField | None = Field(
        default=None, description="The time that `from` and `to` apply to; default: created."
    )
    since: Moment | None = Field(default=None, alias="from")
    until: Moment | None = Field(default=None, alias="to")
    where: Annotated[list[Key], Field(max_length=10)] | None = Field(
        default=None, description="name=value of an argument, or result.name=value; at most ten."
    )


class Out(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, from_attributes=True,
        json_schema_serialization_defaults_required=True,
    )  # fmt: skip


def in_query(model: type[M]) -> Callable[..., Awaitable[M]]:
    """A dependency that reads the fields of this model from the query of a request."""

    async def read(**given: Any) -> M:
        return model.model_construct(**given)

    read.__signature__ = Signature([  # type: ignore[attr-defined]
        Parameter(name, Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[
            field.annotation, *field.metadata, Query(alias=field.alias, description=field.description)
        ])
        for name, field in model.model_fields.items()
    ])  # fmt: skip
    return read


@cache
def out(record: Any) -> type[BaseModel]:
    """The model of answers that show this record: its fields, with their types, defaults and descriptions.

    A description is `Annotated[..., Doc("...")]`. Records within the record become models too. Names become camelCase,
    unless the record gives a field another name (`msgspec.field(name=...)`).
    """
    given: dict[str, Any] = {}
    for each in fields(record):
        about = next((doc.text for doc in getattr(each.type, "__metadata__", ()) if isinstance(doc, Doc)), None)
        options: dict[str, Any] = {"description": about}
        if each.encode_name != each.name:
            options["alias"] = each.encode_name
        if each.default_factory is not NODEFAULT:
            options["default_factory"] = each.default_factory
        elif not each.required:
            options["default"] = each.default
        given[each.name] = (modelled(each.type), Field(**options))
    plain = get_origin(record) or record
    inner = ", ".join(each.__name__ for each in get_args(record) if each is not Any)
    name = f"{plain.__name__}[{inner}]" if inner else plain.__name__
    return create_model(name, __base__=Out, __module__=plain.__module__, __doc__=plain.__doc__, **given)


def modelled(kind: Any) -> Any:
    """This type with a model in place of each record."""
    origin = get_origin(kind)
    if origin is Annotated:
        return modelled(kind.__origin__)
    if any(isinstance(each, type) and issubclass(each, Struct) for each in (kind, origin)):
        return out(kind)
    if origin is Literal or not get_args(kind):
        return kind
    inner = tuple(modelled(each) for each in get_args(kind))
    return reduce(or_, inner) if origin is UnionType else origin[inner]


class ProblemOut(BaseModel, **example(type="about:blank", title="Not found", status=404, detail="there is no item 7")):
    """RFC 9457."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    field: str | None = None
    item_id: int | None = Field(default=None, alias="itemId", description="The live item that has the key.")


class Page(Struct, Generic[T], frozen=True):
    items: list[T]
    next: Annotated[str | None, Doc("`after` of the next page; null on the last.")]


class Changed(Struct, frozen=True):
    """The ids of the rows that were changed."""

    ids: list[int]
