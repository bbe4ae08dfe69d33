"""Guesses arguments from the names and uses of parameters, and again after each refusal of the front end."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace

from tests.fuzz.kinds import KINDS

from .reading import Reading

__all__ = ["ELEMENTS", "Guess", "calmer", "first_guess", "next_guess", "one_program", "other_switches", "spread"]

ELEMENTS = 1 << 17  # of each array
_KINDS = ("f32", "i32", "f16", "u8", "i64", "bf16", "i8", "e4m3", "i1")
_SIZE = 50  # no multiple of a tile
_INDEX = re.compile(
    r"(^|_)(idx|ids?|index|indices|tables?|slots?|locs?|lens?|len|lengths?|starts?|ends?|offsets?|indptr|cu|map|mapping"
    r"|seqlens?|seq_?lens?|tokens?|topk_ids|pages?|req|counts?|counters?|num|nums|perm|positions?|pos|locks?"
    r"|experts?|label|labels|target|targets|block_tables?|segs?|ranks?|weight_indices|lora)(_|s?$)",
    re.IGNORECASE,
)
_FLOAT_VALUE = re.compile(
    r"scale|eps|alpha|beta|theta|temp|dropout|softcap|cap|limit|lr|decay|smooth|inv|factor|thresh|qmax|qmin|fp8_m",
    re.IGNORECASE,
)
_MASK = re.compile(r"mask|^is_|^has_|flag|valid", re.IGNORECASE)
_BYTES = re.compile(r"packed|int4|fp4|qweight|quant|uint8|bytes|zeros|(^|_)mx|nibble", re.IGNORECASE)
_INT8 = re.compile(r"int8|_i8|(^|_)q8", re.IGNORECASE)
_FP8 = re.compile(r"fp8|f8|e4m3", re.IGNORECASE)
_TYPES = re.compile(r"dtype|(^|_)type$", re.IGNORECASE)
_SWITCH = re.compile(
    r"^(is|has|use|do|enable|with|store|save|add|apply|return|causal|load|even|skip|need|compute|norm|inplace|output)(_|$)"
    r"|^(IS|HAS|USE|EVEN|CAUSAL|STORE|ENABLE|SKIP|APPLY|ADD|DO|WITH|NEED)",
)
_HEAD = re.compile(
    r"head_?(dim|size)|d_?model|dmodel|(^|_)d(k|v|im|qk)?$|hidden|d_?head|rope|nope|lora_rank|state|dim", re.IGNORECASE
)


@dataclass
class Guess:
    """The arguments of one attempt.

    ``arrays`` names the kind of element of each array, ``scalars`` the values of numbers, ``constants`` those of
    constexprs: a value, or ``{"type": NAME}`` for a type of Triton's. A pointer that is None is a constant.
    ``calm``: arrays of integers hold 0 and 1.
    """

    arrays: dict[str, str] = field(default_factory=dict)
    scalars: dict[str, float | int] = field(default_factory=dict)
    constants: dict[str, object] = field(default_factory=dict)
    grid: tuple[int, ...] = (1,)
    calm: bool = False


def first_guess(reading: Reading, attempt: int = 0) -> Guess:
    """The guess that the names suggest; further attempts start from smaller and larger tiles, and narrower floats."""
    guess = Guess(grid={1: (4,), 2: (2, 2), 3: (2, 2, 2)}[min(reading.axes, 3)])
    floating = ("f32", "f16", "bf16")[attempt % 3]
    tile = (32, 64, 128, 16)[attempt % 4]
    for place, name in enumerate(reading.parameters):
        if name in reading.constexprs:
            guess.constants[name] = _constant(reading, name, place, tile, attempt)
        elif name in reading.pointers or _looks_like_pointer(name):
            guess.arrays[name] = _kind(reading, name, floating)
        else:
            guess.scalars[name] = _scalar(reading, name, place)
    return guess


def _looks_like_pointer(name: str) -> bool:
    return bool(re.search(r"(^|_)ptrs?(_|$)|ptr$|^p_|Ptr$", name)) and "stride" not in name


def _kind(reading: Reading, name: str, floating: str) -> str:
    stem = re.sub(r"_?ptrs?$", "", name)
    if name in reading.indices or (
        _INDEX.search(stem)
        and not re.search(
            r"weight|scale|logits|emb|cumsum|penalty|decay|prob|temperature|mean|rstd|grad|^d[a-zA-Z]", stem
        )
    ):
        return "i32" if not re.search(r"loc|slot|int64|label|topk_ids", name) else "i64"
    if _MASK.search(stem):
        return "i1"
    if _BYTES.search(stem) and "scale" not in stem:
        return "u8"
    if _INT8.search(stem):
        return "i8"
    if _FP8.search(stem) and "scale" not in stem:
        return "e4m3"
    return "f32" if re.search(r"scale|lse|acc|sum|max|norm", stem) else floating


def _constant(reading: Reading, name: str, place: int, tile: int, attempt: int) -> object:
    literals = [one for one in reading.compared.get(name, []) if not isinstance(one, bool)]
    if re.search(r"(^|_)(min|max)$", name, re.IGNORECASE) and re.search(r"dtype|fp8|f8|int8", name, re.IGNORECASE):
        return -100.0 if name.lower().endswith("min") else 100.0
    if name in reading.types or _TYPES.search(name):
        return literals[0] if any(isinstance(one, str) for one in literals) else {"type": "float32"}
    if "stride" in name.lower():
        return _stride(reading, place)
    if any(isinstance(one, str) for one in literals):
        return next(one for one in literals if isinstance(one, str))
    default = reading.defaults.get(name)
    if attempt % 2 == 0 and name in reading.defaults and default is not None:
        return default
    if re.search(r"log_?2?(_|$)", name, re.IGNORECASE):
        return 6  # of 64, as the sizes of heads are
    if name in reading.extents:
        return (
            64 if _HEAD.search(name) or (re.search(r"_(d|n|k|v)$", name, re.IGNORECASE) and not reading.dots) else tile
        )
    if _SWITCH.search(name) or (
        name in reading.switches and not literals and not re.search(r"size|num|dim|block", name, re.IGNORECASE)
    ):
        return False
    if re.search(r"block|tile|chunk|page|group_?size|(^|_)b[mnkstcdv]$", name, re.IGNORECASE):
        return 64 if re.search(r"(_|block)(d|dmodel|dv|h|hd)$", name, re.IGNORECASE) else tile
    if _FLOAT_VALUE.search(name) and name not in reading.loops:
        return 0.5
    if _HEAD.search(name):
        return 64
    if literals and name in reading.switches:
        return literals[0]
    if re.search(
        r"stages|unroll|iters?|steps|width|bits|top_?k|num_|^n_|ratio|group|heads?|split", name, re.IGNORECASE
    ):
        return 4 if re.search(r"width|bits|top_?k|heads?", name, re.IGNORECASE) else 2
    return 2 if name in reading.loops else tile


def _stride(reading: Reading, place: int) -> int:
    """1 for the last stride of a run of strides of one tensor, more for those before."""
    names = reading.parameters
    after = 0
    for following in range(place + 1, len(names)):
        if "stride" not in names[following].lower() or _tensor(names[following]) != _tensor(names[place]):
            break
        after += 1
    before = place > 0 and "stride" in names[place - 1].lower() and _tensor(names[place - 1]) == _tensor(names[place])
    return (1, 64, 1024, 4096, 16384)[min(after, 4)] if after or before else 64


def _tensor(name: str) -> str:
    """The name of a stride without ``stride`` and without the axis: equal for strides of one tensor."""
    words = [one for one in name.lower().split("_") if one and one not in {"stride", "strides"}]
    if len(words) > 1:
        return "_".join(words[:-1])
    return words[0][: max(len(words[0]) - 1, 1)] if words else ""


def _scalar(reading: Reading, name: str, place: int) -> float | int:
    default = reading.defaults.get(name)
    if isinstance(default, int | float) and not isinstance(default, bool):
        return default
    if "stride" in name.lower():
        return _stride(reading, place)
    if _FLOAT_VALUE.search(name) and not re.search(r"stride|_len|_size|_block|top_?k", name, re.IGNORECASE):
        return 0.5
    if re.search(r"seed|offset|start|begin", name, re.IGNORECASE):
        return 3
    if _HEAD.search(name):
        return 64
    if re.search(r"heads?|batch|num_|experts|group|top_?k", name, re.IGNORECASE):
        return 4
    return _SIZE


def calmer(guess: Guess) -> Guess:
    """The same with smaller sizes, and with integers in arrays that are 0 or 1: fewer places outside of the arrays."""
    scalars = {name: 4 if value == _SIZE else value for name, value in guess.scalars.items()}
    return replace(guess, scalars=scalars, calm=True)


def one_program(guess: Guess) -> Guess:
    """The same with a grid of one program."""
    return replace(guess, grid=(1,) * len(guess.grid))


def spread(guess: Guess) -> Guess:
    """The same with strides 64 times as large: elements between which the names suggested no distance get one."""
    scalars = {name: value * 64 if "stride" in name.lower() else value for name, value in guess.scalars.items()}
    constants = {
        name: value * 64 if "stride" in name.lower() and type(value) is int else value
        for name, value in guess.constants.items()
    }
    return replace(guess, scalars=scalars, constants=constants)


def other_switches(reading: Reading, guess: Guess) -> Guess:
    """The same with every switch the other way, and with the second of the literals that a constexpr meets."""
    constants = dict(guess.constants)
    for name, value in guess.constants.items():
        literals = [one for one in reading.compared.get(name, []) if type(one) is type(value)]
        if isinstance(value, bool):
            constants[name] = not value
        elif isinstance(value, str) and len(literals) > 1:
            constants[name] = (
                literals[(literals.index(value) + 1) % len(literals)] if value in literals else literals[0]
            )
    return Guess(dict(guess.arrays), dict(guess.scalars), constants, guess.grid)


def next_guess(reading: Reading, guess: Guess, message: str, rng: random.Random) -> Guess:
    """Change a parameter that the refused line names, or any parameter now and then."""
    made = Guess(dict(guess.arrays), dict(guess.scalars), dict(guess.constants), guess.grid)
    blamed = [one for text, names in reading.lines.items() if text and text in message for one in names]
    blamed += [name for name in reading.parameters if re.search(rf"\b{re.escape(name)}\b", message)]
    if not blamed or rng.random() < 0.2:
        blamed = list(reading.parameters)
    for name in rng.sample(blamed, min(len(blamed), rng.choice((1, 1, 1, 2, 3)))):
        _change(reading, made, name, rng, _bits_wanted(message))
    return made


def _bits_wanted(message: str) -> int:
    """The size of the target of a refused bitcast; 0 for other refusals."""
    found = re.search(r"bitcast data-type of size \d+ to data-type of size (\d+)", message)
    return int(found[1]) if found else 0


def _is_number(reading: Reading, name: str) -> bool:
    return "stride" in name.lower() or (name in reading.loops and name not in reading.pointers)


def _change(reading: Reading, guess: Guess, name: str, rng: random.Random, bits: int) -> None:
    if name in reading.constexprs:
        literals = reading.compared.get(name, [])
        value = guess.constants[name]
        if isinstance(value, dict):
            guess.constants[name] = rng.choice(({"type": "float32"}, {"type": "bfloat16"}, {"type": "int32"}, 4, True))
        elif isinstance(value, bool):
            guess.constants[name] = rng.choice((not value, not value, None, 16, 64))
        elif name in reading.extents or (name in reading.loops and rng.random() < 0.5):
            guess.constants[name] = rng.choice((16, 32, 64, 128, 2, 4))
        else:
            counted = name in reading.loops
            others = (1, 2, 4) if counted else (1, 2, 4, 16, 32, 64, 128, False, True, None, {"type": "float32"})
            guess.constants[name] = rng.choice((*literals, *others))
        return
    known = guess.arrays.pop(name, None)
    guess.constants.pop(name, None)
    guess.scalars.pop(name, None)
    if name in reading.optional and rng.random() < 0.3:
        guess.constants[name] = None
    elif _is_number(reading, name) or rng.random() < (0.1 if name in reading.pointers else 0.5):
        guess.scalars[name] = rng.choice((1, 4, 16, _SIZE, 64) if _is_number(reading, name) else (4, _SIZE, 0.5))
    else:
        others = [one for one in _KINDS if one != known and (not bits or KINDS[one].bits == bits)]
        guess.arrays[name] = rng.choice(others)
