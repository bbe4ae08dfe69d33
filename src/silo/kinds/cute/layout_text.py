"""Layouts and types as MLIR writes them in the DSL's types: ``(256,(64,8)):(512,(1,64))``, ``!cute.layout<...>``.

The DSL's bindings have no members for most of what a type says, so a type's own words are read, whole: whatever is not
known here is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from silo.errors import CompileError

__all__ = ["Layout", "LayoutLeaf", "Tree", "flat", "parse_layout", "type_parameters"]


@dataclass(frozen=True, slots=True)
class LayoutLeaf:
    """One number of a layout: ``value`` is None where it is known only at the launch.

    ``basis`` are the modes that a stride of coordinates steps along: ``2@1`` is two steps along mode 1.
    """

    value: int | None
    basis: tuple[int, ...] = ()


Tree: TypeAlias = "LayoutLeaf | tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Layout:
    """A shape and strides, trees of the same form."""

    shape: Tree
    stride: Tree


def flat(tree: Tree) -> tuple[LayoutLeaf, ...]:
    """The leaves of a tree, in order."""
    return (tree,) if isinstance(tree, LayoutLeaf) else tuple(leaf for part in tree for leaf in flat(part))


def parse_layout(text: str) -> Layout:
    """A layout of its words.

    >>> layout = parse_layout("(?{i64 div=8},(64,8)):(512,(1@0,1@2))")
    >>> [leaf.value for leaf in flat(layout.shape)], flat(layout.stride)[2]
    ([None, 64, 8], Leaf(value=1, basis=(2,)))

    Raises:
        CompileError: words that are not known here.
    """
    reader = _Reader(text)
    shape = reader.tree()
    reader.take(":")
    stride = reader.tree()
    reader.end()
    if len(flat(shape)) != len(flat(stride)):
        raise _unknown(text)
    return Layout(shape, stride)


def type_parameters(text: str, *names: str) -> list[str]:
    """The parameters of a type with one of these names, as they stand, without quotes round the whole of one.

    >>> type_parameters('!cute.coord_tensor<"(0,0)", "(4,8):(1@1,1@0)">', "cute.coord_tensor")
    ['(0,0)', '(4,8):(1@1,1@0)']

    Raises:
        CompileError: another type.
    """
    name, _, rest = text.partition("<")
    if name not in [f"!{one}" for one in names] or not rest.endswith(">"):
        raise _unknown(text)
    found: list[str] = []
    depth, begin, quoted = 0, 0, False
    body = rest[:-1]
    for at, character in enumerate(body):
        if character == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif character in "<([":
            depth += 1
        elif character in ">)]":
            depth -= 1
        elif character == "," and depth == 0:
            found.append(body[begin:at])
            begin = at + 1
    found.append(body[begin:])
    return [one.strip().removeprefix('"').removesuffix('"') for one in found]


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def take(self, wanted: str) -> None:
        if not self._text.startswith(wanted, self._at):
            raise _unknown(self._text)
        self._at += len(wanted)

    def _taken(self, wanted: str) -> bool:
        found = self._text.startswith(wanted, self._at)
        self._at += len(wanted) if found else 0
        return found

    def end(self) -> None:
        if self._at != len(self._text):
            raise _unknown(self._text)

    def tree(self) -> Tree:
        if not self._taken("("):
            return self._leaf()
        parts: list[Tree] = [self.tree()]
        while self._taken(","):
            parts.append(self.tree())
        self.take(")")
        return tuple(parts)

    def _leaf(self) -> LayoutLeaf:
        if self._taken("?"):
            value = None
            if self._taken("{"):
                self._at = self._text.find("}", self._at)
                self.take("}")
        else:
            value = self._number()
        basis: list[int] = []
        while self._taken("@"):
            basis.append(self._number())
        return LayoutLeaf(value, tuple(basis))

    def _number(self) -> int:
        end = self._at + self._text.startswith("-", self._at)
        while end < len(self._text) and self._text[end].isdigit():
            end += 1
        digits, self._at = self._text[self._at : end], end
        if not digits.lstrip("-"):
            raise _unknown(self._text)
        return int(digits)


def _unknown(words: str | Sequence[str]) -> CompileError:
    return CompileError(f"the DSL's artifact has words that this version of Silo does not know: {words}")
