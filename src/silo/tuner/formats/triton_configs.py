"""Files of Triton's configs: Triton's own autotune files, and the tables of serving engines.

The form of an autotune file follows ``Autotuner.check_disk_cache`` in ``triton.runtime.autotuner`` (3.6 to 3.9).
``key`` holds the values that tuning depended on, followed by dtypes. ``configs_timings`` holds pairs of a config's
members and three quantiles of its time in milliseconds (0.5, 0.2, 0.8). Infinity means that a config did not compile or
needed more resources than the device has.

vLLM and SGLang keep one file for a kernel's shape and device, ``E=8,N=7168,device_name=NVIDIA_H100_80GB_HBM3.json``: it
maps each number of tokens to the members of a Triton config. SGLang puts the file in a folder named after Triton's
version. FlashInfer's ``AutoTuner.save_configs`` maps each combination of operation, runner and input shapes to a runner
and the number of one of its tactics. None of these files holds times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from silo.core.values import Value
from silo.errors import TuneError
from silo.sanitized_text import file_name
from silo.tuner.formats.foreign import (
    ForeignResults,
    ForeignTrial,
    by_config,
    flat_values,
    items_of,
    members_of,
    milliseconds,
    nanoseconds,
    plain_config,
    taken_in,
)
from silo.tuner.formats.parts import Results
from silo.tuner.ledger import KeptStudy
from silo.tuner.trial import Status, Trial
from silo.tuner.winner import Winner, choose_winner

__all__ = [
    "FLASHINFER",
    "SUFFIX",
    "TOOL",
    "VLLM",
    "ServingFile",
    "is_flashinfer",
    "is_token_table",
    "read_autotune",
    "read_flashinfer",
    "read_token_table",
    "write_autotune",
    "write_token_tables",
]

TOOL = "Triton"
SUFFIX = ".autotune.json"

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # the members of a config besides its kwargs
_DEFAULTS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None}
_UNSET = ("pre_hook", "ir_override")  # members that Silo's configs cannot hold
_QUANTILES = (500, 200, 800)  # the quantiles that Triton's autotune files hold, per mille


def read_autotune(results: Results) -> ForeignResults:
    """Reads one autotune file, which is named after its kernel.

    Raises ValueError, which describes the fault, if the file is damaged.
    """
    items_of(results.header.get("key"), "key")
    if results.cut:
        raise ValueError("it ends before its outermost object does")
    kernel = results.name.removesuffix(".gz").removesuffix(SUFFIX)
    rows = (_trial(pair, f"config {number}") for number, pair in results.rows("configs_timings", "["))
    return ForeignResults(TOOL, kernel, "", taken_in(rows, results))


def _trial(pair: object, label: str) -> ForeignTrial:
    parts = items_of(pair, label)
    if len(parts) != 2:
        raise ValueError(f"{label} is {pair!r}; a pair of a config and its times was expected")
    members, timing = members_of(parts[0], label), parts[1]
    if odd := set(members) - {"kwargs", *_OPTIONS, *_UNSET}:
        raise ValueError(f"{label} has the member {min(odd)!r}, which no config of Triton 3.6 to 3.9 has")
    for name in _UNSET:
        if members.get(name) is not None:
            raise ValueError(f"{label} has {name}={members[name]!r}; Silo has no such thing in a config")
    kwargs = members_of(members.get("kwargs"), f"{label}: kwargs")
    options = {name: members[name] for name in _OPTIONS if members.get(name) is not None}
    # drops num_ctas=1, as Silo's reader of @triton.autotune does: one block is no cluster
    if options.get("num_ctas") == 1:
        del options["num_ctas"]
    config = plain_config({**kwargs, **options}, label)
    times = (timing,) if isinstance(timing, int | float) else items_of(timing, label)
    first = times[0] if times else None
    if first == float("inf"):
        return ForeignTrial(config, Status.COMPILE, message="Triton could not compile it, or it asked for too much")
    return ForeignTrial(config, Status.OK, (nanoseconds(first, f"{label}: its time"),))


def write_autotune(key: Sequence[Value], trials: Iterable[Trial]) -> str:
    """Returns trials of one study as the text of an autotune file of Triton.

    With this file Triton uses the config with the least median.

    ``key`` is the key of Triton's tuner: the values of the key's arguments, then the dtypes of the array arguments.

    Raises:
        TuneError: without trials, or if a config holds values that the format cannot hold.
    """
    results = by_config(trials)
    if not results:
        raise TuneError("there are no trials to write")
    pairs: list[object] = []
    for result in results:
        members = flat_values(result.config, TOOL)
        options = {name: members.pop(name, default) for name, default in _DEFAULTS.items()}
        if odd := [name for name, _ in result.config.options if name in members]:
            raise TuneError(f"a config of {TOOL} has no {odd[0]}: {result.config}")
        config = {"kwargs": members, **options, "pre_hook": None, "ir_override": None}
        pairs.append([config, _quantiles(result.samples_ns)])
    return json.dumps({"key": list(key), "configs_timings": pairs})


def _quantiles(samples_ns: Sequence[int]) -> list[float]:
    """Returns the quantiles as ``triton.testing`` computes them, interpolated linearly; infinity without samples."""
    if not samples_ns:
        return [float("inf")] * len(_QUANTILES)
    ordered = sorted(samples_ns)
    quantiles: list[float] = []
    for permille in _QUANTILES:
        below, remainder = divmod((len(ordered) - 1) * permille, 1000)
        above = ordered[min(below + 1, len(ordered) - 1)]
        quantiles.append(milliseconds(ordered[below] + (above - ordered[below]) * remainder // 1000))
    return quantiles


VLLM = "vLLM or SGLang"
FLASHINFER = "FlashInfer"

_MOE_KERNEL = "fused_moe_kernel"  # vLLM's and SGLang's kernel, whose file names begin with the number of experts
# names of key arguments that count tokens, likeliest first
_TOKENS = ("M", "m", "num_tokens", "n_tokens", "tokens", "batch")
_VERSION = "triton_version"
_METADATA, _RECORDS = "_metadata", "_records"
_DEVICE = re.compile(r"device(?:_name)?=([^,]+?)(?:_down)?(?=,|\.json|$)")
# an SGLang file for the second matrix product of a layer, which the same kernel computes
_DOWN = re.compile(r"_down\.json$")
_COUNT = re.compile(r"(?:M_LEQ_)?([0-9]{1,18})")  # a number of tokens; AITER's tables have an upper bound instead
_ANY = "any"  # the member of AITER's tables for all numbers of tokens above the last bound
_OWN_KEYS = ("E", "N", "K")  # members that vLLM and SGLang have in a file's name, by which they find the file
# a key of FlashInfer's: repr() of a Python tuple
_KEY = re.compile(r"\('([^'\\]{1,200})', '[^'\\]{1,200}', .{1,4096}\)")


def is_token_table(members: frozenset[str]) -> bool:
    """Returns whether the names of the outermost members are numbers of tokens."""
    names = members - {_VERSION, _ANY}
    return bool(names) and all(_COUNT.fullmatch(name) for name in names)


def is_flashinfer(members: frozenset[str]) -> bool:
    """Returns whether the outermost members are FlashInfer's: its metadata, or tuples of an operation and a runner."""
    keys = {name for name in members if not name.startswith("_")}
    return _METADATA in members or (bool(keys) and all(name.startswith("('") for name in keys))


def read_token_table(results: Results) -> ForeignResults:
    """Reads a file of vLLM or SGLang. Raises ValueError, which describes the fault, if the file is damaged."""
    trials: dict[bytes, ForeignTrial] = {}
    tokens = sorted((name for name in results.header if name != _VERSION), key=_count)
    # A member is null if SGLang's tuner found no config that works.
    absent = [name for name in tokens if results.header[name] is None]
    for name in tokens:
        if name in absent:
            continue
        label = f"the config for {name} tokens"
        config = plain_config(members_of(results.header[name], label), label)
        trials.setdefault(config.order_key, ForeignTrial(config, Status.OK))
    if not trials:
        raise ValueError("it holds no config")
    device, down = _DEVICE.search(results.name), _DOWN.search(results.name)
    return ForeignResults(
        VLLM,
        _MOE_KERNEL if results.name.startswith("E=") else "",
        "" if device is None else device[1].replace("_", " "),
        tuple(trials.values()),
        notes=(
            f"the numbers of tokens ({tokens[0]} to {tokens[-1]}) are not kept: each config is tried for every size",
            "the file has no times, so its configs are tried in its order",
            *((f"it holds no config for {', '.join(absent)} tokens",) if absent else ()),
            *(("it is of a layer's second product: the same kernel at other sizes",) if down else ()),
        ),
    )


def _count(name: str) -> int:
    """Returns a member's number of tokens, to sort by; 10^18 for a name without a number."""
    match = _COUNT.fullmatch(name)
    return 10**18 if match is None else int(match[1])


def read_flashinfer(results: Results) -> ForeignResults:
    """Reads a file of FlashInfer's tuner that holds one operation.

    Raises ValueError, which describes the fault, if the file is damaged.
    """
    trials: dict[bytes, ForeignTrial] = {}
    operations: dict[str, None] = {}
    for key, value in results.header.items():
        if key.startswith("_"):  # FlashInfer's metadata, or records that other programs added
            continue
        operation = _operation_of(key)
        parts = items_of(value, f"the value of {key[:80]!r}")
        if len(parts) != 2 or not isinstance(parts[0], str):
            raise ValueError(f"the value of {key[:80]!r} is not a runner and its tactic")
        operations[operation] = None
        tactic = parts[1] if isinstance(parts[1], int | str) else json.dumps(parts[1], separators=(",", ":"))
        config = plain_config({"runner": parts[0], "tactic": tactic}, f"the value of {key[:80]!r}")
        trials.setdefault(config.order_key, ForeignTrial(config, Status.OK))
    if not trials:
        raise ValueError("it holds no config")
    metadata = results.header.get(_METADATA)
    device = members_of(metadata, _METADATA).get("gpu") if metadata is not None else None
    return ForeignResults(
        FLASHINFER,
        next(iter(operations)) if len(operations) == 1 else "",
        device if isinstance(device, str) else "",
        tuple(trials.values()),
        notes=(
            "shapes are not kept: each runner and tactic is tried for every size",
            "a tactic's number belongs to its runner and to this version of FlashInfer: use it with the same ones",
            "each config has the parameters runner and tactic",
            *(("records of other programs in the file are left out",) if results.header.get(_RECORDS) else ()),
            *((f"it holds {len(operations)} operations; all configs go to one kernel",) if len(operations) > 1 else ()),
        ),
    )


def _operation_of(key: str) -> str:
    match = _KEY.fullmatch(key)
    if match is None:
        raise ValueError(f"the key {key[:80]!r} is not an operation, a runner and shapes")
    return match[1]


@dataclass(frozen=True)
class ServingFile:
    """A file to write: its path in the folder, its text, its studies, and notes about the results that it omits."""

    place: str
    text: str
    studies: tuple[KeptStudy, ...]
    notes: tuple[str, ...]


def write_token_tables(studies: Iterable[KeptStudy], *, sglang: bool = False) -> list[ServingFile]:
    """Returns the winners of studies as files of vLLM or SGLang, with their texts.

    Studies that differ only in their number of tokens go into one file.

    Raises:
        TuneError: no key argument counts tokens, or a config holds values that the format cannot hold.
    """
    groups: dict[tuple[object, ...], dict[int, list[tuple[KeptStudy, Winner]]]] = {}
    for study in studies:
        winner = choose_winner(study.trials)
        if winner is None:
            continue
        tokens, others = _split(study)
        key = (study.study.kernel, study.study.device.name, others, _triton_of(study) if sglang else "")
        groups.setdefault(key, {}).setdefault(tokens, []).append((study, winner))
    return [_file(group, sglang=sglang) for group in groups.values()]


def _split(entry: KeptStudy) -> tuple[int, tuple[tuple[str, Value], ...]]:
    """Returns the number of tokens of a study, and the other members of its key."""
    study = entry.study
    pairs = tuple(zip(study.bucket_names, study.bucket, strict=True))
    integer_names = [name for name, value in pairs if isinstance(value, int) and not isinstance(value, bool)]
    name = next(
        (key_name for key_name in _TOKENS if key_name in integer_names),
        integer_names[0] if len(integer_names) == 1 else None,
    )
    if name is None:
        raise TuneError(
            f"{study.kernel}: {VLLM} keep a config for each number of tokens, and no key is called "
            f"{', '.join(_TOKENS)}: it has {', '.join(study.bucket_names) or 'no key'}"
        )
    tokens = next(value for key_name, value in pairs if key_name == name)
    assert isinstance(tokens, int)
    return tokens, tuple(pair for pair in pairs if pair[0] != name)


def _file(group: Mapping[int, Sequence[tuple[KeptStudy, Winner]]], *, sglang: bool) -> ServingFile:
    chosen = {tokens: max(pairs, key=lambda pair: len(pair[0].trials)) for tokens, pairs in group.items()}
    table = {str(tokens): flat_values(chosen[tokens][1].config, VLLM) for tokens in sorted(chosen)}
    first_study = next(iter(chosen.values()))[0]
    _, others = _split(first_study)
    notes = ["times, failed configs and all configs but the winners are left out"]
    dropped = sum(len(pairs) - 1 for pairs in group.values())
    if dropped:
        notes.append(f"{dropped} studies of the same sizes (other types, alignments or sources) are left out")
    names = {name for name, _ in others}
    device = re.sub(r"[^A-Za-z0-9._-]", "_", first_study.study.device.name)
    if {"E", "N"} <= names:
        own = [f"{name}={value}" for name, value in others if name in _OWN_KEYS]
        notes.append("the engines' names also hold the dtype of quantized weights: add ,dtype=... where they expect it")
    else:
        own = [file_name(first_study.study.kernel, both_cases=True), *(f"{name}={value}" for name, value in others)]
        notes.append("the engines find a file by E=, N=, device_name= and dtype=: rename it")
    json_name = re.sub(r"[^A-Za-z0-9%._=,+-]", "_", f"{','.join([*own, f'device_name={device}'])}.json")
    folder = f"triton_{_triton_of(first_study)}/" if sglang else ""
    written = tuple(study for study, _ in chosen.values())
    return ServingFile(folder + json_name, json.dumps(table, indent=4), written, tuple(notes))


def _triton_of(entry: KeptStudy) -> str:
    """Returns the version of Triton in a study's compiler as SGLang's folders write it: ``3_9_0``."""
    match = re.search(r"triton (\d+(?:\.\d+)*)", entry.study.compiler)
    return "unknown" if match is None else match[1].replace(".", "_")
