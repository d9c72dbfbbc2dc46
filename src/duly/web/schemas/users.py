"""Users, their API keys, and the current user."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from duly.web.schemas import Model, Moment, Password, Word, clean, example


class SignIn(Model):
    model_config = example(userId="ana", password="correct horse battery")  # noqa: S106 - an example

    user_id: Word
    password: Annotated[str, StringConstraints(max_length=1_024)]


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


class KeyIn(Model):
    model_config = example(name="shop", scopes=["read", "write"], expiresAt="2027-12-01T00:00:00Z")

    name: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"\S"), AfterValidator(clean)]
    scopes: list[Literal["read", "write", "admin"]] = Field(default=["read", "write"], min_length=1, max_length=3)
    expires_at: Moment | None = None
    user_id: Word | None = Field(
        default=None, description="The user that gets the key. Only admins may give another user."
    )
