"""What a C text of the CPU compiler may be made of: numbers, names of its own making, and strings that were encoded."""

from __future__ import annotations

import re
from functools import cache, lru_cache

from silo.kinds.triton.cpu.emit.kernel_text import PRELUDE, EmittedKernel
from silo.kinds.triton.cpu.emit.shared_text import REST
from silo.kinds.triton.cpu.lower.messages import c_string

__all__ = ["strange"]

_TOKEN = re.compile(
    r"""(?P<space>[ ]+)
    |(?P<pragma>\#pragma\ omp\ simd(?:\ reduction\([-+*&|^a-z]+:[a-z]+[0-9]+\))*$)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<number>\.?[0-9](?:[eEpP][-+]|[0-9A-Za-z.])*)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>->|/(?![/*])|[][(){}<>=!+\-*%&|^~?:;,.])""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"0x[0-9a-f]+(?:\.[0-9a-f]+)?(?:p[-+][0-9]+f?)?u?|[0-9]+(?:u|ll|ull)?|[0-9]+\.[0-9]*f?")
_BYTE = re.compile(r"\\([0-7]{3})|([^\\])")
# What `printf` of a print and of an assertion is given, and what a NaN is made of.
_FORMAT = re.compile(
    r'"pid \(%d, %d, %d\)(?: idx \((?:%[0-9]+d(?:, %[0-9]+d)*)?\))?%s(?:\(operand [0-9]+\) )?'
    r'(?:%p|%f|%lld|%llu|0x%0[0-9]+llx)?\\n"'
    r'|"%s%s; program \(%d, %d, %d\)(?:, index \(%d(?:, %d)*\))?"|""'
)
_WORDS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Names that the compiler numbers, and the words of C that it writes; all others are of the runtime's text.
_STEMS = """
    a acc apply at b block code column columns common count e failed first flag folded high i k kept lane lanes
    lanes_of_rows last left length limit low n o on p pair part passed quotient r remainder room row rows s same seen
    silo_function slot slots step stride sum t table tile to trips v vector whole wide y
"""
_NUMBERED = re.compile(rf"(?:{'|'.join(_STEMS.split())})[0-9]+(?:_frame|_vector|_[0-9]+)?")
# What the runtime's text makes by pasting words together, and products by their shapes.
_PASTED = re.compile(
    r"silo_(?:atomic|dot|fold|lanes|product|volatile_load)_(?:[a-z0-9_]|f8E[0-9A-Z]+)+|silo_exp2?_lanes_f32"
)
_C_WORDS = """
    _Alignas _Static_assert __ATOMIC_ACQUIRE __ATOMIC_ACQ_REL __ATOMIC_RELAXED __ATOMIC_RELEASE __SIZE_TYPE__
    __attribute__ __atomic_thread_fence begin break char const context continue do double else end enum fflush float
    for goto grid if int int16_t int32_t int64_t int8_t inline lanes limit long next_program nobody params printf
    program program_x program_y program_z return running scratch short signed sizeof snprintf static streamed struct
    text uint16_t uint32_t uint64_t uint8_t uintptr_t unsigned unused void volatile
    a aligned b c i may_alias of rows to vector_size
    lasting pair while quiet silo_check silo_fault SILO_FAULT_ASSERT silo_tile
"""
_BUILTIN = re.compile(r"__builtin_[a-z0-9]+")


def strange(kernel: EmittedKernel, marker: str) -> str:
    """What is in the C text of ``kernel`` that should not be, or ""; ``marker`` is in every text of the attacker."""
    runtime, _, own = kernel.source.partition(PRELUDE)
    if marker in runtime:
        return "the marker is in the runtime's text"
    known = _words(runtime) | _words(PRELUDE)
    for line in own.splitlines():
        reason = "" if line == REST else _strange_line(line, kernel.entry, known)
        if reason:
            return reason
    return ""


@lru_cache(maxsize=1 << 17)  # most lines of one text are those of the next
def _strange_line(line: str, entry: str, known: frozenset[str]) -> str:
    place = 0
    while place < len(line):
        token = _TOKEN.match(line, place)
        if token is None:
            return f"neither name, number, string nor sign: {line[place : place + 60]!r}"
        text, place = token.group(), token.end()
        if token.lastgroup == "string" and not (_FORMAT.fullmatch(text) or _is_encoded(text)):
            return f"a string that was not encoded: {text[:100]}"
        if token.lastgroup == "number" and not _NUMBER.fullmatch(text):
            return f"no number: {text[:100]}"
        if token.lastgroup == "name" and not _is_ours(text, entry, known):
            return f"a name that nobody of ours made: {text[:100]}"
    return ""


@lru_cache(maxsize=4096)
def _words(text: str) -> frozenset[str]:
    return frozenset(_WORDS.findall(text))


@cache
def _own_words() -> frozenset[str]:
    return frozenset(_C_WORDS.split())


def _is_ours(name: str, entry: str, known: frozenset[str]) -> bool:
    return bool(
        name in known
        or name in _own_words()
        or name in (entry, f"{entry}_frame", f"{entry}_turn")
        or _NUMBERED.fullmatch(name)
        or _BUILTIN.fullmatch(name)
        or _PASTED.fullmatch(name)
    )


def _is_encoded(literal: str) -> bool:
    """Whether it is, byte for byte, what the encoder makes of some text."""
    data = b"".join(
        bytes([int(code, 8) & 0xFF]) if code else plain.encode(errors="surrogatepass")
        for code, plain in _BYTE.findall(literal[1:-1])
    )
    try:
        return c_string(data.decode(errors="surrogatepass")) == literal
    except UnicodeDecodeError:
        return False
