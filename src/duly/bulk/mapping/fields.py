"""The fields that a task needs, as values. An app may define its own."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

ValueKind = Literal["text", "code", "number", "ean", "url"]


class Field(Struct, frozen=True, kw_only=True):
    """One field: its name, other names of columns that mean it, and what its values are."""

    name: str
    synonyms: tuple[str, ...] = ()
    kind: ValueKind = "text"
    longest: int = 1_000  # characters


class Fields(Struct, frozen=True, kw_only=True):
    """All fields of a row, what a row must have at least, and what makes two rows the same."""

    fields: tuple[Field, ...]
    any_of: tuple[str, ...] = ()  # a row without any of these is refused
    identity: tuple[tuple[str, ...], ...] = ()  # the first of these of which a row has every field says which row it is


PRODUCT = Fields(
    fields=(
        Field(
            name="title",
            synonyms=(
                "name", "product", "product name", "product title", "item", "item name", "article", "bezeichnung",
                "artikelbezeichnung", "produkt", "produktname", "titel", "nom", "nom du produit", "titre", "nombre",
                "titulo", "naziv", "nazwa",
            ),
        ),
        Field(
            name="brand",
            synonyms=("manufacturer", "maker", "make", "vendor", "brand name", "marke", "hersteller", "marque"),
        ),
        Field(
            name="sku",
            kind="code",
            synonyms=(
                "item number", "item no", "item id", "article number", "article no", "artikelnummer", "artikel nr",
                "art nr", "product code", "product id", "part number", "mpn", "stock code", "model number", "reference",
                "ref", "code", "id",
            ),
        ),
        Field(name="ean", kind="ean", synonyms=("gtin", "upc", "barcode", "gtin13", "ean13", "isbn", "strichcode")),
        Field(name="price", kind="number", synonyms=("cost", "amount", "unit price", "preis", "prix", "precio")),
        Field(name="quantity", kind="number", synonyms=("qty", "stock", "count", "menge", "anzahl", "quantite")),
        Field(name="category", synonyms=("type", "product type", "department", "kategorie", "categorie", "categoria")),
        Field(name="description", synonyms=("details", "text", "beschreibung", "descripcion"), longest=20_000),
        Field(name="color", synonyms=("colour", "farbe", "couleur")),
        Field(name="size", synonyms=("dimensions", "grosse", "taille")),
        Field(name="url", kind="url", synonyms=("link", "product url", "product link", "website", "web page")),
        Field(name="image", kind="url", synonyms=("image url", "image link", "picture", "photo", "bild", "bild url")),
    ),
    any_of=("title", "sku", "ean"),
    identity=(("ean",), ("sku", "brand"), ("sku",), ("title", "brand"), ("title",)),
)  # fmt: skip
