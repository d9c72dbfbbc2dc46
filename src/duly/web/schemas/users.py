"""Users, their keys, and who is signed in."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from duly.web.schemas import Model, Moment, Out, Password, Word, clean, example


class SignIn(Model):
    model_config = example(userId="ana", password="correct horse battery")  # noqa: S106 - an example

    user_id: Word
    password: Annotated[str, StringConstraints(max_length=1_024)]


class MeOut(Out):
    user_id: str
    role: str
    scopes: list[str]
    via: str


class UserIn(Model):
    model_config = example(id="ana", role="user", password="correct horse battery")  # noqa: S106 - an example

    id: Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(clean)]
    role: Literal["user", "admin"] = "user"
    password: Password | None = None


class UserEdit(Model):
    model_config = example(role="admin")

    role: Literal["user", "admin"] | None = None
    password: Password | None = None
    disabled: bool | None = None


class UserOut(Out):
    id: str
    role: str
    created_at: datetime
    disabled_at: datetime | None
    has_password: bool


class KeyIn(Model):
    model_config = example(name="shop", scopes=["read", "write"], expiresAt="2027-12-01T00:00:00Z")

    name: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"\S"), AfterValidator(clean)]
    scopes: list[Literal["read", "write", "admin"]] = Field(default=["read", "write"], min_length=1, max_length=3)
    expires_at: Moment | None = None
    user_id: Word | None = Field(default=None, description="For whom; others than yourself are for admins.")


class KeyOut(Out):
    id: str
    user_id: str
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewKeyOut(KeyOut):
    secret: str = Field(description="Shown this once.")
