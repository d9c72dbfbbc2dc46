"""What a field of a record means, in one sentence, for those who read the API's documentation.

job_id: Annotated[int | None, Doc("The job that it is a row of.")]
"""

from __future__ import annotations

from msgspec import Struct


class Doc(Struct, frozen=True):
    text: str
