"""Products by words with the instructions for matrix tiles told apart and done by C, so that any CPU can run them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from silo.drivers.cpu.levels import LEVELS, gather_facts, highest_level
from silo.kinds.triton.cpu import runtime

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or highest_level(gather_facts()) != "x86-64-v4", reason="needs gcc and AVX-512"
)
TYPES = {"bf16": ("uint16_t", "float", "SILO_UNIT_BF16"), "i8": ("uint8_t", "int32_t", "SILO_UNIT_VNNI")}
_FORMS = (
    (r"tilezero %%tmm(\d)", "tile_zero({0})"),
    (r"tileloadd \(%(\d),%(\d),1\), %%tmm(\d)", "tile_load({2}, {v[0]}, {v[1]})"),
    (r"tilestored %%tmm(\d), \(%(\d),%(\d),1\)", "tile_store({0}, {v[1]}, {v[2]})"),
    (r"tdpbf16ps %%tmm(\d), %%tmm(\d), %%tmm(\d)", "tile_multiply({2}, {1}, {0}, 2)"),
    (r"tdpbssd %%tmm(\d), %%tmm(\d), %%tmm(\d)", "tile_multiply({2}, {1}, {0}, 4)"),
    (r"ldtilecfg %(\d)", "tile_config(&({v[0]}))"),
    (r"tilerelease", "(void)0"),
)


def closing(text, start):
    """The end of what is in brackets from ``start`` on, strings passed over."""
    depth, quoted = 1, False
    for place in range(start, len(text)):
        quoted ^= text[place] == '"'
        depth += 0 if quoted else {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise AssertionError("brackets do not match")


def by_functions(text):
    """``text`` with every assembler statement on tiles as calls."""
    found, place = [], 0
    while (start := text.find("__asm__ volatile(", place)) >= 0:
        begin = start + len("__asm__ volatile(")
        end = closing(text, begin)
        body = text[begin:end]
        calls = statement(body) if "tile" in body or "tdp" in body else text[start : end + 1]
        found += [text[place:start], calls]
        place = end + 1
    return "".join([*found, text[place:]])


def statement(body):
    strings = re.match(r'\s*((?:"[^"]*"\s*)+)', body)
    words = "".join(re.findall(r'"([^"]*)"', strings.group(1)))
    rest = body[strings.end() :]
    values = [rest[one.end() : closing(rest, one.end())] for one in re.finditer(r'"[rm]"\(', rest)]
    return "do { " + "; ".join(call(one.strip(), values) for one in words.split(r"\n\t")) + "; } while (0)"


def call(instruction, values):
    for form, text in _FORMS:
        if one := re.fullmatch(form, instruction):
            named = [values[int(number)] if int(number) < len(values) else "" for number in one.groups()]
            return text.format(*one.groups(), v=named)
    raise AssertionError(instruction)


@pytest.mark.parametrize("kind", TYPES)
def test_products_of_parts_of_tiles(kind, tmp_path):
    element, sums, unit = TYPES[kind]
    names = {"ELEMENT": element, "SUMS": sums, "OWN_UNIT": unit, "PRODUCT": f"silo_dot_packed_{kind}"}
    source = [
        (HERE / "words_tiles.h").read_text(encoding="utf-8"),
        by_functions(runtime.text({f"dot_packed_{kind}"}, 512, 2)),
        *(f"#define {name} {value}" for name, value in names.items()),
        (HERE / "words_check.c").read_text(encoding="utf-8"),
    ]
    (tmp_path / "words.c").write_text("\n".join(source), encoding="utf-8")
    flags = ["-O2", "-std=gnu11", "-w", "-fopenmp-simd", "-fno-strict-aliasing", *LEVELS["x86-64-v4"].flags]
    subprocess.run(["gcc", *flags, "words.c", "-o", "words"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "words"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
