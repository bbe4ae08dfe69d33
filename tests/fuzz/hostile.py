"""Makes a TTIR text hostile: attributes, names, strings, types and places that somebody wrote to reach the C text."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from random import Random

import silo.kinds.triton.cpu
import silo.kinds.triton.front
from silo.kinds.triton.front.operations.operation_table import OPERATIONS

__all__ = ["MARKER", "Hostile"]

MARKER = "EvilMark"  # in every text of the attacker; no word of the compiler's
_OPERATION = re.compile(r'"((?:arith|cf|gpu|llvm|math|scf|tt|ttg|ub)\.[\w.]+)"(?=\()')
_PROPERTIES = re.compile(r" <\{(.*)\}>")
_MEMBER = re.compile(r'([A-Za-z_][\w.]*) = ((?:"[^"]*"|array<[^>]*>|dense<.*?> : \S+>|[^,{}\[\]]+|\[.*\])(?: : \w+)?)')
_VALUE_NAME = re.compile(r"%(\w+)")
_LABEL = re.compile(r"\^(\w+)")
_TYPE = re.compile(r"(?:tensor<[0-9x]+(?:!tt\.ptr<\w+>|\w+)>|!tt\.ptr<\w+>|\b(?:f32|i32|i1)\b)")
_READ = re.compile(r"""attributes(?:\.get\(|\[)["'](\w[\w.]*)["']""")

# Ways out of a string, a comment, a line, a format or a template; {m} is the marker.
_TEXTS = (
    "{m}",
    "{m}\\22); system(\\22{m}\\22); //",
    '{m}\\"); system(\\"{m}\\"); /*',
    "{m}\\\\\\22; {m}();",
    "{m}*/ {m} /*",
    "{m}??/\\22; {m}(); //",
    "{m}??/",
    "{m}\\\\",
    "{m}\\0A#include \\22{m}\\22\\0A",
    "{m}\\0D\\0Aint {m};",
    "\\n#define printf {m}",
    "{m}%n%n%s%p%1000000000d",
    "%{m}",
    "%",
    "{m}\\00after",
    "\\1B[2J{m}",
    "{m}\\C3\\28\\FF\\FE",
    "{m}\u202e\u2028\u0661\u00e9\U0001f600",
    "{{0}}{m}{{1}}{{a}}{{}}",
    "{{{m}.__class__}}",
    "$0{m}$1",
    "../../{m}",
    "0){m}(0",
    "1; {m}(); 1",
    "__attribute__((constructor)) void {m}(void)",
    "x{m}" * 40,
    "a" * 70000 + "{m}",
    "",
)
_NUMBERS = (
    "0 : i32",
    "-1 : i32",
    "3 : i32",
    "7 : i64",
    "99 : i64",
    "2147483647 : i32",
    "-2147483648 : i32",
    "4294967296 : i64",
    "170141183460469231731687303715884105727 : i128",
    "-99999999999999999999999999999999999999 : i128",
    "0x7FC00000 : f32",
    "0xFF800000 : f32",
    "0x7FF0000000000000 : f64",
    "0x7FF8000000000001",
    "1.0E+308 : f64",
    "-0.0 : f32",
    "1.5",
    "0x7C01 : f16",
    "true",
    "false",
    "unit",
    "1 : index",
)
_OTHERS = (
    '@"{t}"',
    "@{m}",
    '@"{t}"::@{m}',
    "#{m}",
    '#tt.{m}<"{t}">',
    '#arith.fastmath<"{t}">',
    "!{m}",
    '!tt.{m}<"{t}">',
    '!tt.ptr<!{m}<"{t}">>',
    "({m}) -> i32",
    "(i32) -> !{m}",
    'loc("{t}":1:2)',
    'affine_map<"{t}">',
    'distinct[0]<"{t}">',
    '["{t}", "{t}"]',
    '[{{{m} = "{t}"}}, 1 : i32]',
    '{{{m} = "{t}", "{t}" = 1 : i32}}',
    "array<i32: 1, -1, 99>",
    "array<i32: 0>",
    "array<i1: true, false>",
    "array<f32: 0x7FC00000, 1.5>",
    "array<i32>",
    "dense<7> : tensor<16xi32>",
    "dense<0x7FC00000> : tensor<16xf32>",
    'dense<"0x0000C07F"> : tensor<1xf32>',
    "dense<[1, 2]> : tensor<2xi32>",
    "dense<true> : tensor<16xi1>",
    "dense<-1> : tensor<1x1xi64>",
    "i32",
    "tensor<4xf32>",
    "[]",
    "{{}}",
    "[[[[1 : i32]]]]",
)
_TYPES = (
    "!{m}",
    '!tt.ptr<!{m}<"{t}">>',
    '!{m}<"{t}">',
    "!tt.ptr<!tt.ptr<!{m}>>",
    'tensor<4x!{m}<"{t}">>',
    '!tt.ptr<f32, "{t}">',
    "tensor<999999999999999999xf32>",
    "tensor<0xf32>",
    "i128",
    "f8E8M0FNU",
    "none",
    "index",
    "i4",
    "{m}",
)
_NAMES = ('"{t}"', "{m}", "tt.{m}", "silo.{m}", "ttg.{m}", "{m}.attr", "llvm.{m}")


@cache
def _known_names() -> tuple[str, ...]:
    """Every attribute that the code reads or adds, so that an attacker can try them where they do not belong."""
    names = {
        "operand",
        "checked",
        "site",
        "what",
        "how",
        "steps",
        "unsigned",
        "predicate",
        "axis",
        "location",
        "nodialect",
    }
    for record in OPERATIONS.values():
        names.update(record.attributes.allowed if record.attributes else ())
    for package in (silo.kinds.triton.cpu, silo.kinds.triton.front):
        for path in Path(package.__path__[0]).rglob("*.py"):
            names.update(_READ.findall(path.read_text()))
    return tuple(sorted(names))


_OWN_OPERATIONS = "network volatile_load fence mirror nanoseconds access begin hint holds place step suspect"


class Hostile:
    """One random change of ``text``, which ``change`` describes in words."""

    def __init__(self, text: str, random: Random) -> None:
        self.random = random
        self.change = ""
        ways = (self._add, self._add, self._replace, self._replace, self._discardable, self._remove)
        rare = (self._symbol, self._type, self._operation, self._place, self._value_name, self._label, self._argument)
        way = random.choice(rare) if random.random() < 0.2 else random.choice(ways)
        self.text = way(text)

    # ---- pieces

    def string(self) -> str:
        """What stands between quotes."""
        return self.random.choice(_TEXTS).format(m=MARKER)

    def value(self) -> str:
        """An attribute of any kind."""
        kind = self.random.random()
        if kind < 0.45:
            return f'"{self.string()}"'
        if kind < 0.65:
            return self.random.choice(_NUMBERS)
        return self.random.choice(_OTHERS).format(m=MARKER, t=self.string()[:2000])

    def name(self) -> str:
        """The name of an attribute: mostly one that means something somewhere."""
        if self.random.random() < 0.75:
            return self.random.choice(_known_names())
        return self.random.choice(_NAMES).format(m=MARKER, t=self.string()[:2000])

    def _line(self, text: str, pattern: re.Pattern[str] = _OPERATION) -> tuple[list[str], int, re.Match[str]] | None:
        """The lines of ``text`` and one of those that match."""
        lines = text.split("\n")
        found = [(number, match) for number, line in enumerate(lines) for match in [pattern.search(line)] if match]
        if not found:
            return None
        number, match = self.random.choice(found)
        return lines, number, match

    # ---- ways to change a text

    def _add(self, text: str) -> str:
        """An attribute more, where the properties of an operation stand."""
        chosen = self._line(text)
        if chosen is None:
            return text
        lines, number, match = chosen
        name, value = self.name(), self.value()
        self.change = f"{match.group(1)} gets {name} = {value[:60]}"
        line = lines[number]
        member = name if value == "unit" else f"{name} = {value}"
        if " <{" in line:
            lines[number] = line.replace(" <{", f" <{{{member}, ", 1)
        else:  # behind the operands and the blocks that it goes to
            end = _end_of_operands(line, match.end())
            lines[number] = f"{line[:end]} <{{{member}}}>{line[end:]}"
        return "\n".join(lines)

    def _discardable(self, text: str) -> str:
        """An attribute more, where passes put theirs."""
        chosen = self._line(text)
        if chosen is None:
            return text
        lines, number, match = chosen
        name, value = self.name(), self.value()
        self.change = f"{match.group(1)} is told {name} = {value[:60]}"
        if " : (" in lines[number]:
            head, middle, tail = lines[number].rpartition(" : (")
            lines[number] = f"{head} {{{name} = {value}}}{middle}{tail}"
        return "\n".join(lines)

    def _replace(self, text: str) -> str:
        """Another value for an attribute that an operation has."""
        return self._members(text, lambda name: f"{name} = {self.value()}")

    def _remove(self, text: str) -> str:
        """An attribute less."""
        return self._members(text, lambda _name: "")

    def _members(self, text: str, make: object) -> str:
        assert callable(make)
        chosen = self._line(text, _PROPERTIES)
        if chosen is None:
            return text
        lines, number, match = chosen
        members = list(_MEMBER.finditer(lines[number], match.start(1), match.end(1)))
        if not members:
            return text
        member = self.random.choice(members)
        new = str(make(member.group(1)))
        self.change = f"line {number}: {member.group()[:60]} becomes {new[:60]}"
        head, tail = lines[number][: member.start()], lines[number][member.end() :]
        if not new:  # with the comma before or behind it
            head, tail = (head[:-2], tail) if head.endswith(", ") else (head, tail.removeprefix(", "))
        lines[number] = head + new + tail
        return "\n".join(lines)

    def _symbol(self, text: str) -> str:
        """Another name for a function, where it stands and where it is called."""
        names = re.findall(r'sym_name = "([^"]*)"', text)
        if not names:
            return text
        old, new = self.random.choice(names), self.string()[:4000]
        self.change = f"the function {old} is called {new[:60]}"
        text = text.replace(f'sym_name = "{old}"', f'sym_name = "{new}"')
        return text.replace(f"callee = @{old}", f'callee = @"{new}"')

    def _type(self, text: str) -> str:
        """Another type, in one place or wherever it stands."""
        found = list(_TYPE.finditer(text))
        if not found:
            return text
        match = self.random.choice(found)
        new = self.random.choice(_TYPES).format(m=MARKER, t=self.string()[:2000])
        self.change = f"the type {match.group()} becomes {new[:60]}"
        if self.random.random() < 0.5:
            return text.replace(match.group(), new)
        return text[: match.start()] + new + text[match.end() :]

    def _operation(self, text: str) -> str:
        """Another operation: one of the compiler's own, or none at all."""
        chosen = self._line(text)
        if chosen is None:
            return text
        lines, number, match = chosen
        new = self.random.choice(
            (
                *(f"silo.{name}" for name in _OWN_OPERATIONS.split()),
                *(name for name, record in OPERATIONS.items() if record.attributes),
                f"tt.{MARKER}",
                f'x\\22){MARKER}("',
                MARKER,
            )
        )
        self.change = f"{match.group(1)} becomes {new}"
        lines[number] = lines[number].replace(match.group(1), new)
        return "\n".join(lines)

    def _place(self, text: str) -> str:
        """Another place in the source, which assertions and errors name."""
        chosen = self._line(text)
        if chosen is None:
            return text
        lines, number, _ = chosen
        words = self.string()[:4000]
        self.change = f"line {number} is said to be at {words[:60]}"
        if not lines[number].endswith(("({", ":")):
            lines[number] = re.sub(r" loc\(.*", "", lines[number]) + f' loc("{words}":7:1)'
        return "\n".join(lines)

    def _value_name(self, text: str) -> str:
        """Another name for a value."""
        names = _VALUE_NAME.findall(text)
        old = self.random.choice(names)
        new = self.random.choice((MARKER, f"{MARKER}$.-", f"-{MARKER}", "printf", f"\u00e9{MARKER}"))
        self.change = f"%{old} becomes %{new}"
        return re.sub(rf"%{old}\b", lambda _: f"%{new}", text)

    def _label(self, text: str) -> str:
        """Another name for a block."""
        names = _LABEL.findall(text)
        old = self.random.choice(names)
        self.change = f"^{old} becomes ^{MARKER}"
        return re.sub(rf"\^{old}\b", f"^{MARKER}", text)

    def _argument(self, text: str) -> str:
        """Facts about an argument of the kernel."""
        member = f"{self.name()} = {self.value()}"
        self.change = f"an argument has {member[:80]}"
        return text.replace("arg_attrs = [{", f"arg_attrs = [{{{member}, ", 1).replace(", }", "}", 1)


def _end_of_operands(line: str, start: int) -> int:
    end = line.index(")", start) + 1
    if line.startswith("[", end):
        end = line.index("]", end) + 1
    return end
