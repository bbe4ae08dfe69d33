"""Checks that dependencies between C files have no cycle, and that each header declares only its own file's functions.

    python scripts/c_circles.py [--draw]

A unit is a header and the C file of the same name. What a header declares must be defined in its own unit, or in no C
file of the folder. A unit depends on another if it includes the other's header, or if its code names a function or
variable that the other's file defines. The code of a unit is its file and the inline functions of its header; a macro
counts for the unit that uses it. The script prints each cycle with the names that make it, and each declaration in
another unit's header, and fails if there are any. With ``--draw`` it prints every unit with the units that it depends
on, those with few dependencies first.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[1] / "native"

_IGNORED = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_INCLUDE = re.compile(r"^#include \"(\w+)\.h\"", re.MULTILINE)
_DIRECTIVE = re.compile(r"^#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_TAG = re.compile(r"\b(?:struct|enum|union)\s+\w+")
_INLINE = re.compile(r"^(?:SILO_INLINE|static inline)[^;{}=()]*?\b(\w+)\(.*?^\}", re.MULTILINE | re.DOTALL)
_MACRO = re.compile(r"^#define (\w+)((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
_NAME = re.compile(r"\b[A-Za-z_]\w*\b")
# A declaration or definition that begins at the first column, up to its body, value or semicolon.
_DEFINITION = re.compile(r"^([A-Za-z_][^;{}=]*?)\s*(\{|=|;)", re.MULTILINE)


# Headers that belong to no unit: the library's interface, and the values of a manifest, with the functions of
# bundle_reader.c.
_INTERFACES = frozenset({"silo.h", "manifest.h"})


def declared(text: str) -> set[str]:
    """Return the functions and variables that a header declares; ``text`` is without comments and directives."""
    found: set[str] = set()
    for head, end in _DEFINITION.findall(_INLINE.sub("", text)):
        if end != ";" or re.match(r"(static|typedef|struct\s*$|enum|_Static_assert)\b", head):
            continue
        plain = re.sub(r"\[[^\]]*\]", "", _TAG.sub("", re.sub(r"__attribute__\(\(.*?\)\)", "", head)))
        function = re.match(r"[^()]*?\b(\w+)\s*\(", plain, re.DOTALL)
        if function:
            found.add(function[1])
        elif head.startswith("extern"):
            found.update(re.findall(r"(\w+)\s*(?=,|$)", plain))
    return found


def defined(text: str) -> set[str]:
    """Return a C file's functions and variables that other files may name.

    ``text`` is without comments and directives.
    """
    found: set[str] = set()
    for head, end in _DEFINITION.findall(text):
        plain = re.sub(r"\[[^\]]*\]", "", _TAG.sub("", re.sub(r"__attribute__\(\(.*?\)\)", "", head)))
        if re.match(r"(static|extern|typedef|SILO_INLINE|struct\s*$|enum|_Static_assert)\b", head):
            continue
        function = re.match(r"[^()]*?\b(\w+)\s*\(", plain, re.DOTALL)
        if function and end == "{":
            found.add(function[1])
        elif not function:
            found.update(re.findall(r"(\w+)\s*(?=,|$)", plain))
    return {name for name in found if name.startswith("silo_") or name == "PyInit__native"}


class Tree:
    """The C files below a folder: ``arrows`` has the dependencies of each unit, with the names that cause them."""

    def __init__(self, folder: Path) -> None:
        files = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.[ch]"))}
        code = {name: _IGNORED.sub(" ", text) for name, text in files.items()}
        self._macros = {
            found[1]: self._names(found[0]) - {found[1]}
            for name, text in code.items()
            if name.endswith(".h")
            for found in _MACRO.finditer(text)
        }
        places = {
            word: name[:-2]
            for name, text in code.items()
            if name.endswith(".c")
            for word in defined(_DIRECTIVE.sub("", text))
        }
        self.arrows: dict[str, dict[str, set[str]]] = {name[:-2]: defaultdict(set) for name in code}
        for name, text in files.items():
            unit = name[:-2]
            for header in _INCLUDE.findall(text):
                self._lead(unit, header, f"#include in {name}")
            own = code[name] if name.endswith(".c") else "\n".join(found[0] for found in _INLINE.finditer(code[name]))
            for word in self._with_macros(self._names(own)) & places.keys():
                self._lead(unit, places[word], word)

        self.strays = {
            f"{name} declares {word}, which {places[word]}.c defines"
            for name, text in code.items()
            if name.endswith(".h") and name not in _INTERFACES
            for word in declared(_DIRECTIVE.sub("", text)) & places.keys()
            if places[word] != name[:-2]
        }

    def _lead(self, unit: str, other: str, reason: str) -> None:
        if other != unit:
            self.arrows[unit][other].add(reason)

    @staticmethod
    def _names(text: str) -> set[str]:
        return set(_NAME.findall(_TAG.sub("", text)))

    def _with_macros(self, names: set[str]) -> set[str]:
        """Return the names, and all names that macros among them expand to."""
        found, todo = set(names), list(names)
        while todo:
            new = self._macros.get(todo.pop(), set[str]()) - found
            found |= new
            todo += new
        return found

    def reached(self, unit: str) -> set[str]:
        """Return every unit that a unit depends on, directly or not; the unit itself only if it is in a cycle."""
        found, todo = set[str](), [unit]
        while todo:
            new = self.arrows[todo.pop()].keys() - found
            found |= new
            todo += new
        return found


def main(arguments: list[str]) -> int:
    """Check, and print what is wrong; return 1 if anything is."""
    tree = Tree(NATIVE)
    reached = {unit: tree.reached(unit) for unit in tree.arrows}
    if "--draw" in arguments:
        for unit in sorted(tree.arrows, key=lambda unit: (len(reached[unit]), unit)):
            print(f"{unit}: {' '.join(sorted(tree.arrows[unit]))}")
    circles = 0
    for unit, others in tree.arrows.items():
        for other in sorted(others):
            if unit in reached[other]:
                circles += 1
                print(f"in a circle: {unit} -> {other}: {', '.join(sorted(others[other]))}", file=sys.stderr)
    for stray in sorted(tree.strays):
        print(stray, file=sys.stderr)
    return 1 if circles or tree.strays else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
