"""Which file holds which piece of the runtime, and what each piece stands on."""

from __future__ import annotations

import hashlib
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from importlib import resources

__all__ = ["PIECES", "Piece", "runtime_digest", "text"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece: its file, the pieces it calls, and the words to exchange in the file (one text serves many types)."""

    file: str
    needs: tuple[str, ...] = ()
    exchange: tuple[tuple[str, str], ...] = ()


# In the order of the emitted text: a piece stands after everything it needs.
PIECES: dict[str, Piece] = {
    "types": Piece("types.h"),
    "libm": Piece("libm.h"),
    "half": Piece("half.h", ("types",)),
    "integer": Piece("integer.h", ("types",)),
    "convert": Piece("convert.h", ("types",)),
    "minmax": Piece("minmax.h", ("types",)),
    "round": Piece("round.h", ("types",)),
    "exp": Piece("exp.h", ("types",)),
    "log": Piece("log.h", ("types",)),
    "trig": Piece("trig.h", ("types",)),
    "tanh": Piece("tanh.h", ("exp",)),
    "erf": Piece("erf.h", ("exp",)),
    "atomic": Piece("atomic.h", ("types", "half")),
    "stream": Piece("stream.h", ("types",)),
    "lanes": Piece("lanes.h"),
    "sums_f32": Piece("scan.h", ("types", "lanes")),
    "sums_f64": Piece(
        "scan.h",
        ("types", "lanes"),
        (("f32", "f64"), ("-0.0f", "-0.0"), ("LANES_OF_4", "LANES_OF_8"), ("float", "double")),
    ),
    "sums_i32": Piece("scan.h", ("types", "lanes"), (("f32", "i32"), ("-0.0f", "0"), ("float", "uint32_t"))),
    "sums_i64": Piece(
        "scan.h",
        ("types", "lanes"),
        (("f32", "i64"), ("-0.0f", "0"), ("LANES_OF_4", "LANES_OF_8"), ("float", "uint64_t")),
    ),
    "swap_f32": Piece("swap.h", ("types",)),
    "swap_f64": Piece("swap.h", ("types",), (("f32", "f64"), ("float", "double"), ("int32_t", "int64_t"))),
    "swap_i32": Piece("swap.h", ("types",), (("f32", "i32"), ("float", "int32_t"))),
    "swap_u32": Piece("swap.h", ("types",), (("f32", "u32"), ("float", "uint32_t"))),
    "swap_i64": Piece("swap.h", ("types",), (("f32", "i64"), ("int32_t", "int64_t"), ("float", "int64_t"))),
    "swap_u64": Piece("swap.h", ("types",), (("f32", "u64"), ("int32_t", "int64_t"), ("float", "uint64_t"))),
    "dot_f32": Piece("dot.h", ("types",)),
    "dot_f64": Piece("dot.h", ("types",), (("f32", "f64"), ("float", "double"))),
    "dot_i8": Piece("dot_i8.h", ("types",)),
}


def text(pieces: AbstractSet[str], vector_bits: int) -> str:
    """The C text of ``pieces`` and of all they need, in one fixed order.

    ``types`` is always part of it. ``vector_bits`` is the width (128, 256 or 512) that dot kernels are blocked for.
    ``KeyError`` names a piece that does not exist.
    """
    if vector_bits not in (128, 256, 512):
        raise ValueError(f"vectors have 128, 256 or 512 bits, not {vector_bits}")
    wanted: set[str] = set()
    pending = ["types", *sorted(pieces)]
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted.add(name)
            pending.extend(PIECES[name].needs)
    width = f"#define SILO_VECTOR_BITS {vector_bits}\nenum {{ SILO_VECTOR_BYTES = {vector_bits // 8} }};\n"
    return width + "\n".join(_piece_text(name) for name in PIECES if name in wanted)


@cache
def runtime_digest() -> str:
    """sha256 over every piece: changes whenever emitted code may change because of the runtime."""
    state = hashlib.sha256()
    for name in PIECES:
        state.update(f"{name}\0{_piece_text(name)}\0".encode())
    return state.hexdigest()


@cache
def _piece_text(name: str) -> str:
    piece = PIECES[name]
    body = resources.files(__package__ or "silo.backends.cpu.runtime").joinpath(piece.file).read_text(encoding="utf-8")
    for old, new in piece.exchange:
        body = body.replace(old, new)
    return body
