"""Models of answers are made from structs: fields, types, names, defaults and descriptions are the struct's."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Struct, field

from duly.core.wire import Doc
from duly.web.schemas import Page, modelled, out


class Leaf(Struct, frozen=True):
    """A part."""

    leaf_id: int


class Tree(Struct, frozen=True, kw_only=True):
    """A whole."""

    tree_id: Annotated[int, Doc("Its number.")]
    since_then: str = field(name="from")
    leaves: list[Leaf]
    best: Annotated[Leaf | None, Doc("The best one.")] = None
    kinds: tuple[Literal["a", "b"], ...] = ()
    counts: dict[str, int] = {}
    anything: Any = None


def test_an_answer_has_the_names_of_the_struct_in_camel_case_unless_it_names_them_itself() -> None:
    tree = Tree(tree_id=1, since_then="x", leaves=[Leaf(2)], best=Leaf(3), anything={"as_it": "is"})
    assert out(Tree).model_validate(tree).model_dump(mode="json", by_alias=True) == {
        "treeId": 1, "from": "x", "leaves": [{"leafId": 2}], "best": {"leafId": 3}, "kinds": [], "counts": {},
        "anything": {"as_it": "is"},
    }  # fmt: skip


def test_the_document_has_the_descriptions_and_all_fields_are_always_there() -> None:
    schema = out(Tree).model_json_schema(mode="serialization", by_alias=True)
    assert schema["description"] == "A whole."
    assert schema["properties"]["treeId"]["description"] == "Its number."
    assert schema["properties"]["best"]["description"] == "The best one."
    assert schema["properties"]["kinds"]["items"] == {"enum": ["a", "b"], "type": "string"}
    assert set(schema["required"]) == set(schema["properties"])
    assert schema["$defs"]["Leaf"]["properties"]["leafId"]["type"] == "integer"


def test_a_struct_has_one_model() -> None:
    assert out(Tree) is out(Tree)
    assert modelled(Page[Tree]) is modelled(Page[Tree])
    assert modelled(Page[Tree]).model_json_schema()["title"] == "Page[Tree]"
    assert modelled(list[Leaf]) == list[out(Leaf)]  # type: ignore[misc]
