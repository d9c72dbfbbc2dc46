"""The fields of a product, and the column names that are mapped to them."""

from __future__ import annotations

from duly.bulk.mapping import Field, Fields

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
