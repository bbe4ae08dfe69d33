"""The pieces of the C runtime: the file of each piece, and the other pieces that it needs."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from importlib import resources

__all__ = ["DOT_DEPTH_BYTES", "PIECES", "Piece", "text", "with_needs"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece: its file, the pieces it calls, and words to replace in the file.

    Replacing words lets one file serve several types.
    """

    file: str
    needs: tuple[str, ...] = ()
    exchange: tuple[tuple[str, str], ...] = ()


def _fp8(kind: str, mantissa: int, bias: int, nan: int, largest: int, *, infinite: bool, unsigned_zero: bool) -> Piece:
    words = {
        "KIND": kind,
        "MANTISSA": f"{mantissa}",
        "BIAS": f"{bias}u",
        "NAN_BITS": f"{nan:#x}u",
        "LARGEST": f"{largest:#x}u",
        "INFINITE": f"{int(infinite)}",
        "UNSIGNED_ZERO": f"{int(unsigned_zero)}",
    }
    return Piece("fp8.h", ("types",), tuple(words.items()))


# The bytes of one row or column that a dot processes in one pass: panels two vectors wide stay in the first-level
# cache.
DOT_DEPTH_BYTES = 1024

# For each type of element that dots read: its C type, the C type and element in which it is multiplied, and the piece
# that converts it.
_READ = {
    "f32": ("float", "float", "f32", "dot_tile"),
    "f64": ("double", "double", "f64", "dot_tile"),
    "i8": ("int8_t", "float", "f32", "dot_tile"),
    "f16": ("uint16_t", "float", "f32", "half"),
    "bf16": ("uint16_t", "float", "f32", "half"),
    **{
        element: ("uint8_t", "float", "f32", element)
        for element in ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ", "f8E4M3B11FNUZ")
    },
}


def _reader(element: str, ctype: str, real: str, factor: str, converter: str, *, widens: bool) -> Piece:
    exchange = (("ELEMENT", element), ("CTYPE", ctype), ("REAL", real), ("FACTOR", factor))
    if not widens:
        return Piece("dot_read.h", (f"dot_widen_{element}", "dot_tile"), exchange)
    return Piece("dot_widen_f16.h" if element == "f16" else "dot_widen.h", (converter,), exchange)


# All pieces, in the order of the emitted text: a piece comes after all pieces that it needs.
PIECES: dict[str, Piece] = {
    "types": Piece("types.h"),
    "fault": Piece("fault.h"),
    "check": Piece("check.h", ("types",)),
    "wait": Piece("wait.h", ("types",)),
    "print": Piece("print.h"),
    "libm": Piece("libm.h"),
    "half": Piece("half.h", ("types",)),
    "half_blocks": Piece("half_blocks.h", ("half",)),
    "narrow": Piece("narrow.h", ("types",)),
    "f8E4M3FN": _fp8("f8E4M3FN", 3, 7, 0x7F, 0x7E, infinite=False, unsigned_zero=False),
    "f8E5M2": _fp8("f8E5M2", 2, 15, 0x7F, 0x7B, infinite=True, unsigned_zero=False),
    "f8E4M3FNUZ": _fp8("f8E4M3FNUZ", 3, 8, 0x80, 0x7F, infinite=False, unsigned_zero=True),
    "f8E5M2FNUZ": _fp8("f8E5M2FNUZ", 2, 16, 0x80, 0x7F, infinite=False, unsigned_zero=True),
    "f8E4M3B11FNUZ": _fp8("f8E4M3B11FNUZ", 3, 11, 0x80, 0x7F, infinite=False, unsigned_zero=True),
    "integer": Piece("integer.h", ("types",)),
    "convert": Piece("convert.h", ("types",)),
    "minmax": Piece("minmax.h", ("types",)),
    "round": Piece("round.h", ("types",)),
    "fp4": Piece("fp4.h", ("types",)),
    "e8m0": Piece("e8m0.h", ("types",)),
    "roots": Piece("roots.h", ("types", "libm")),
    "bits": Piece("bits.h", ("types", "integer")),
    "parts": Piece("parts.h", ("types", "libm")),
    "directed": Piece("directed.h", ("types", "narrow")),
    "whole": Piece("whole.h", ("types", "convert", "round")),
    "exp10": Piece("exp10.h", ("types", "libm")),
    "probability": Piece("probability.h", ("types", "libm")),
    "bessel": Piece("bessel.h", ("types", "libm")),
    "exp": Piece("exp.h", ("types",)),
    "log": Piece("log.h", ("types",)),
    "trig": Piece("trig.h", ("types",)),
    "tan": Piece("tan.h", ("trig",)),
    "pi": Piece("pi.h", ("trig", "libm")),
    "wide": Piece("wide.h", ("types",)),
    "pow": Piece("pow.h", ("wide",)),
    "ten": Piece("ten.h", ("wide", "log")),
    "area": Piece("area.h", ("wide",)),
    "cbrt": Piece("cbrt.h", ("types",)),
    "erfc": Piece("erfc.h", ("wide",)),
    "arc": Piece("arc.h", ("types",)),
    "exp_f64": Piece("exp_f64.h", ("types",)),
    "log_f64": Piece("log_f64.h", ("types",)),
    "tanh_f64": Piece("tanh_f64.h", ("exp_f64",)),
    "hyperbolic": Piece("hyperbolic.h", ("exp",)),
    "tanh": Piece("tanh.h", ("exp",)),
    "erf": Piece("erf.h", ("exp",)),
    "atomic": Piece("atomic.h", ("types", "half")),
    "all": Piece("all.h", ("types",)),
    "transpose": Piece("transpose.h", ("types",)),
    "plain_updates": Piece("plain_updates.h", ("types", "half", "atomic")),
    "lasting": Piece("lasting.h", ("types",)),
    "turns": Piece("turns.h", ("types",)),
    "atomic_runs": Piece("atomic_runs.h", ("atomic", "plain_updates", "turns")),
    "clock": Piece("clock.h", ("types",)),
    "volatile": Piece("volatile.h", ("types",)),
    "combine_i32": Piece("combine.h", ("types",), (("SUFFIX", "i32"), ("UTYPE", "uint32_t"), ("TYPE", "int32_t"))),
    "combine_i64": Piece("combine.h", ("types",), (("SUFFIX", "i64"), ("UTYPE", "uint64_t"), ("TYPE", "int64_t"))),
    "ahead": Piece("ahead.h", ("types",)),
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
    "dot_tile": Piece("dot_tile.h", ("types", "transpose")),
    "dot_scale": Piece("dot_scale.h", ("types", "fp4")),
    "dot_unit": Piece("dot_unit.h", ("types",)),
    "dot_f32": Piece("dot.h", ("dot_tile",), (("KIND", "f32"), ("REAL", "float"), ("TOTAL", "float"))),
    "dot_f64": Piece("dot.h", ("dot_tile",), (("KIND", "f64"), ("REAL", "double"), ("TOTAL", "double"))),
    "dot_i8": Piece("dot.h", ("dot_tile",), (("KIND", "i8"), ("REAL", "float"), ("TOTAL", "int32_t"))),
    **{f"dot_widen_{element}": _reader(element, *how, widens=True) for element, how in _READ.items()},
    **{f"dot_read_{element}": _reader(element, *how, widens=False) for element, how in _READ.items()},
    "dot_lanes": Piece("dot_lanes.h", ("dot_tile", "half")),
    **{
        f"dot_thin_{element}": Piece("dot_thin.h", ("dot_lanes",), (("ELEMENT", element), ("CTYPE", ctype)))
        for element, ctype in (("f32", "float"), ("bf16", "uint16_t"), ("f16", "uint16_t"))
    },
    "dot_split": Piece("dot_split.h", ("dot_read_bf16",)),
    "dot_packed_bf16": Piece(
        "dot_packed.h",
        ("dot_tile", "dot_unit", "dot_split"),
        (
            (
                "OTHERWISE",
                "silo_split_rows(most, m, filled, first, items, depth, a, (float *)left_work, panels, c, n, starts)",
            ),
            ("KIND", "bf16"),
            ("ITEM", "uint16_t"),
            ("TOTAL", "float"),
            ("SIGNS", "0u"),
            ("MULTIPLY", "tdpbf16ps"),
            ("ACCUMULATE", "vdpbf16ps"),
        ),
    ),
    "dot_two": Piece("dot_two.h", ("dot_packed_bf16", "dot_read_f16")),
    "dot_packed_i8": Piece(
        "dot_packed.h",
        ("dot_tile", "dot_unit"),
        (
            ("OTHERWISE", "__builtin_unreachable()"),
            ("KIND", "i8"),
            ("ITEM", "uint8_t"),
            ("TOTAL", "int32_t"),
            ("SIGNS", "0x80808080u"),
            ("MULTIPLY", "tdpbssd"),
            ("ACCUMULATE", "vpdpbusd"),
        ),
    ),
}


def with_needs(pieces: AbstractSet[str]) -> frozenset[str]:
    """``pieces`` and all pieces that they need; raises ``KeyError`` for an unknown piece."""
    needed: set[str] = set()
    pending = sorted(pieces)
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending.extend(PIECES[name].needs)
    return frozenset(needed)


def text(pieces: AbstractSet[str], vector_bits: int, dot_units: int = 2) -> str:
    """The C text of ``pieces`` and of all pieces that they need, in a fixed order.

    The piece ``types`` is always included. ``vector_bits`` is the vector width (128, 256 or 512) for which dots are
    blocked. ``dot_units`` are the instructions that dots may use if the CPU has them: 0 those of the CPU level alone, 1
    vector instructions beyond the level, 2 also matrix tiles. Raises ``KeyError`` for an unknown piece.
    """
    if vector_bits not in (128, 256, 512):
        raise ValueError(f"vectors have 128, 256 or 512 bits, not {vector_bits}")
    needed = with_needs({"types", *pieces})
    head = f"#define SILO_VECTOR_BITS {vector_bits}\n"
    head += f"enum {{ SILO_VECTOR_BYTES = {vector_bits // 8}, SILO_DOT_DEPTH_BYTES = {DOT_DEPTH_BYTES} }};\n"
    head += f"#define SILO_DOT_UNITS {dot_units}\n" if "dot_unit" in needed else ""
    return head + "\n".join(_piece_text(name) for name in PIECES if name in needed)


@cache
def _piece_text(name: str) -> str:
    piece = PIECES[name]
    body = (
        resources.files(__package__ or "silo.kinds.triton.cpu.runtime").joinpath(piece.file).read_text(encoding="utf-8")
    )
    for old, new in piece.exchange:
        body = body.replace(old, new)
    return body
