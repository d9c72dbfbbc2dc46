"""The words of queries for a product: the most specific ones first, then fewer of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping

from msgspec import Struct

LONGEST = 300  # characters of a question
# What sellers put into titles and others do not: what stands in brackets, and how many are in a pack.
_BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_PACKS = re.compile(r"\b(?:pack of \d+|\d+ ?(?:er|x|pcs?|pieces|pack))\b")
_NO_WORD = re.compile(r"[\W_]+")
_ENDING = re.compile(r"\.\w{1,5}$")


class Wanted(Struct, frozen=True):
    """What is known of a product that is looked for."""

    title: str = ""
    brand: str = ""
    sku: str = ""
    ean: str = ""


def _brand_title(wanted: Wanted) -> str:
    if not (wanted.brand and wanted.title):
        return ""
    has_it = wanted.title.casefold().startswith(wanted.brand.casefold())
    return wanted.title if has_it else f"{wanted.brand} {wanted.title}"


def plain(title: str) -> str:
    """A title without accents, brackets, packs and punctuation, in lower case."""
    letters = unicodedata.normalize("NFKD", title.casefold())
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return _NO_WORD.sub(" ", _PACKS.sub(" ", _BRACKETS.sub(" ", bare))).strip()


def named(file: str) -> str:
    """The words in the name of a file, such as `blue tea pot` in `shop/Blue_Tea-Pot.jpg`."""
    return plain(_ENDING.sub("", file.replace("\\", "/").rpartition("/")[2]))


VARIANTS: dict[str, Callable[[Wanted], str]] = {
    "sku": lambda wanted: wanted.sku,
    "ean": lambda wanted: wanted.ean,
    "brand_title": _brand_title,
    "title": lambda wanted: wanted.title,
    "plain_title": lambda wanted: plain(wanted.title),
}


def queries(wanted: Wanted) -> Mapping[str, str]:
    """The words of each variant that this product has words for; the same words are not asked for twice."""
    found: dict[str, str] = {}
    for variant, words in VARIANTS.items():
        if (query := words(wanted).strip()[:LONGEST]) and query not in found.values():
            found[variant] = query
    return found
