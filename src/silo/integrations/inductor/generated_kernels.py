"""Replaces functions of Inductor, so that its generated CPU kernels get Silo's configs and native launchers."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import wraps
from typing import Any

from silo.core.specialization import Specialization
from silo.errors import SiloError, UnsupportedError
from silo.forks import Notices
from silo.frozen import frozen
from silo.kinds.triton.front import adapter
from silo.kinds.triton.programs.compiled_code import consent_to, read_launch
from silo.launch.native import Launcher
from silo.launch.runtime import bind, make_bound_launcher
from silo.machine.device_plugins import devices_of_kind

__all__ = [
    "GeneratedKernel",
    "blocks_for",
    "bool_sums_by_torch",
    "chosen_configs",
    "finished",
    "in_process",
    "never_unwrapped",
    "own_promises",
    "rows_are_neighbours",
    "rows_in_loops",
    "served_launcher",
    "without_sorting",
    "without_workers",
]


# ---- Block sizes on a CPU, chosen from Inductor's description of a kernel; without side effects ----


@frozen
class GeneratedKernel:
    """Inductor's description of a kernel that it generated.

    ``sizes`` maps a dimension to its number of elements, rounded up to a power of two; ``given`` holds the block sizes
    of each config that Inductor proposes. ``source`` is the kernel's text, or "" if it is unknown.
    """

    kind: str  # POINTWISE, REDUCTION, PERSISTENT_REDUCTION, ...
    sizes: Mapping[str, int]
    given: tuple[Mapping[str, int], ...]
    meta: Mapping[str, Any]
    source: str = ""

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the kernel's block sizes."""
        return tuple(sorted({name for config in self.given for name in config}))

    @property
    def is_outer(self) -> bool:
        """Whether neighbouring addresses, as a reduction reads them, belong to different rows instead of to one row.

        For such a reduction, a good block covers many rows and few elements of each row.
        """
        are_neighbours = rows_are_neighbours(self.source)
        if are_neighbours is not None:
            return are_neighbours
        scores: Mapping[str, float] = self.meta.get("tiling_scores") or {}
        return scores.get("x", 0) > scores.get("r0_", 0)

    @property
    def across(self) -> str:
        """A dimension other than x along which some access goes through adjacent addresses.

        "" if every access goes along x, or the text is unknown. If every access goes along x, reads and writes of a
        pointwise kernel run in the same order.
        """
        return across_of(self.source)

    @property
    def period(self) -> int:
        """The smallest divisor of a row index in the text, at least a cache line; 0 if none, or if no power of two.

        Inductor splits a row index in two with ``xindex // period``. The rows of one period are adjacent in memory.
        """
        periods = [int(number) for number in _PERIOD.findall(self.source)]
        smallest = min((period for period in periods if period >= _LINE), default=0)
        return 0 if smallest & (smallest - 1) else smallest


# Inductor writes an address as a sum of terms, for example ``x0 + 1024*r0_1``. Earlier lines of the kernel assign the
# index of a row to one name (``x0``) and the index of an element in the row to another name (``r0_1``).
_READ = re.compile(r"tl\.load\(\w+ \+ \(([\w +*]+)\),")
_ROW_INDEX = re.compile(r"^\s*(\w+) = (?:xindex|\(xindex % \d+\))$", re.MULTILINE)
_ELEMENT_INDEX = re.compile(r"^\s*(\w+) = (?:r0_index|\(r0_index % \d+\))$", re.MULTILINE)
_PERIOD = re.compile(r"= (?:\()?xindex // (\d+)\b")


def rows_are_neighbours(source: str) -> bool | None:
    r"""Returns True if a reduction reads adjacent rows, False if it reads along a row, None if that is unclear.

    Rows are adjacent if the next row is fewer elements away than the next element of the same row.

    >>> text = "x0 = xindex\n r0_1 = (r0_index % 14)\n tl.load(in_ptr0 + ({}), xmask)"
    >>> addresses = ("x0 + 1024*r0_1", "r0_1 + 64*x0", "2*r0_1 + 784*x0", "x0 + ks0*r0_1", "r0_1")
    >>> [rows_are_neighbours(text.format(address)) for address in addresses]
    [True, False, False, True, None]
    """
    rows, elements = set(_ROW_INDEX.findall(source)), set(_ELEMENT_INDEX.findall(source))
    across, along = False, False
    for address in _READ.findall(source):
        strides = dict(map(_stride, address.split(" + ")))
        of_rows, of_elements = ([strides[name] for name in names & strides.keys()] for names in (rows, elements))
        if of_rows and of_elements:
            across |= min(of_rows) < min(of_elements)
            along |= min(of_elements) < min(of_rows)
    return None if across == along else across


def _stride(term: str) -> tuple[str, float]:
    """The index in a term of an address, and the number that multiplies it: infinity for a size known at run time."""
    factor, _, name = term.rpartition("*")
    return name, float(factor) if factor.isdigit() else math.inf if factor else 1.0


# Patterns for the text of a pointwise kernel: an access with its address, the line that defines the index along a
# dimension, and an innermost pair of parentheses.
_ACCESS = re.compile(r"tl\.(?:load|store)\(\w+ \+ \((.*?)\), ")
_DIMENSION_INDEX = re.compile(r"^\s*(\w+) = \(?([xyz])index(?: % \d+\))?$", re.MULTILINE)
_INSIDE = re.compile(r"\([^()]*\)")


def across_of(source: str) -> str:
    r"""Returns a dimension other than x along which some access of a pointwise kernel has adjacent addresses.

    "" if all accesses go along x.

    >>> text = "y0 = yindex\n x1 = xindex\n tl.load(in_ptr0 + ({}), xmask)\n"
    >>> [across_of(text.format(one)) for one in ("y0 + 64*x1", "x1 + 64*y0", "64*x1", "")]
    ['y', '', '', '']
    """
    dimensions = dict(_DIMENSION_INDEX.findall(source))
    for address in _ACCESS.findall(source):
        while address != (plain := _INSIDE.sub("", address)):
            address = plain  # noqa: PLW2901
        terms = address.split(" + ")
        along = {dimensions[term] for term in terms if term in dimensions}
        scaled = {dimensions.get(term.partition("*")[2]) for term in terms}
        if "x" in scaled and "x" not in along and along:
            return max(along)
    return ""


# Elements of a pointwise block: enough for vector loops, few enough for a core's nearest caches.
_SPAN = 2048
# Elements of a row that a reduction reads in one step. The second number is for Welford reductions of rows that are
# longer than the first: they keep a mean and a variance for each element of a step, and combining these at the end of
# the row costs divisions.
_PIECE, _WELFORD_PIECE = 1024, 128
# Elements of a tile that is read along one axis and written along the other, and elements along its short axis. The
# short axis is a whole cache line long, so reads and writes use whole lines.
_TILE = 4096
_LINE = 16
# Adjacent rows that a reduction sums in one step if neighbouring addresses belong to different rows (``is_outer``).
_ROWS = 1024
# Elements of a program that reduces short rows: enough that they cost more than starting the program.
_SHORT = 4096
_LIMITS = {"XBLOCK": 4096, "YBLOCK": 1024, "ZBLOCK": 1024, "R0_BLOCK": 65536, "R1_BLOCK": 32768}


def blocks_for(kernel: GeneratedKernel) -> tuple[Mapping[str, int], ...]:
    """Returns block sizes to try, best guess first; an empty tuple if Inductor's own block sizes are kept."""
    choose = _KINDS.get(kernel.kind)
    if choose is None or not kernel.given or kernel.meta.get("tma_min_block_sizes") or kernel.meta.get("RSPLIT_SIZE"):
        return ()
    return tuple(blocks for blocks in choose(kernel) if _keeps(kernel, blocks))


def _keeps(kernel: GeneratedKernel, blocks: Mapping[str, int]) -> bool:
    """Returns whether ``blocks`` sets exactly the kernel's block sizes, to powers of two within Inductor's limits."""
    return tuple(sorted(blocks)) == kernel.blocks and all(
        0 < value <= _LIMITS.get(name, 0) and not value & (value - 1) for name, value in blocks.items()
    )


def _block(dimension: str) -> str:
    """The name of the block size along a dimension."""
    return f"{dimension.upper()}BLOCK"


def _pointwise(kernel: GeneratedKernel) -> Sequence[Mapping[str, int]]:
    sizes = kernel.sizes
    if list(sizes) == ["x"] and kernel.blocks == ("XBLOCK",):
        return [{"XBLOCK": min(_SPAN, sizes["x"])}]
    if set(sizes) not in ({"x", "y"}, {"x", "y", "z"}) or kernel.blocks != tuple(map(_block, sorted(sizes))):
        return ()
    across = kernel.across or ("y" if not kernel.source else "")
    if across:
        return [_tile(sizes, across)]
    blocks, left = dict.fromkeys(kernel.blocks, 1), _SPAN
    for name in sorted(sizes):
        block = _block(name)
        blocks[block] = min(left, sizes[name], _LIMITS[block])
        left //= blocks[block]
    return [blocks]


def _tile(sizes: Mapping[str, int], across: str) -> Mapping[str, int]:
    """Returns block sizes for a kernel that reads along one axis and writes along the other, as a transpose does."""
    x, other = sizes["x"], sizes[across]
    short = min(_LINE, other)
    long = min(_TILE // short, x)
    block = _block(across)
    blocks = dict.fromkeys(map(_block, sizes), 1)
    return {**blocks, "XBLOCK": long, block: min(_TILE // long, other, _LIMITS[block])}


def _reduction(kernel: GeneratedKernel) -> Sequence[Mapping[str, int]]:
    if kernel.blocks not in (("R0_BLOCK",), ("R0_BLOCK", "XBLOCK")) or set(kernel.sizes) != {"x", "r0_"}:
        return ()
    x, row = kernel.sizes["x"], kernel.sizes["r0_"]
    outer = "XBLOCK" in kernel.blocks and kernel.is_outer
    rows = min(_ROWS, x, kernel.period or _ROWS)
    piece = _WELFORD_PIECE if row > _PIECE and "welford_reduce(" in kernel.source else _PIECE
    first_blocks = {"XBLOCK": rows, "R0_BLOCK": 1} if outer else {"XBLOCK": 1, "R0_BLOCK": min(piece, row)}
    return [{name: first_blocks[name] for name in kernel.blocks}]


def _persistent(kernel: GeneratedKernel) -> Sequence[Mapping[str, int]]:
    if kernel.blocks != ("XBLOCK",) or set(kernel.sizes) != {"x", "r0_"}:
        return ()
    if kernel.is_outer:
        return [{"XBLOCK": max(1, min(kernel.sizes["x"], 65536 // kernel.sizes["r0_"], _ROWS))}]
    return [{"XBLOCK": max(1, min(kernel.sizes["x"], _SHORT // kernel.sizes["r0_"]))}]


_KINDS = {"POINTWISE": _pointwise, "REDUCTION": _reduction, "PERSISTENT_REDUCTION": _persistent}


# ---- Inductor's generated kernels for the CPU, with Silo's configs ----

_log = logging.getLogger("silo")


def chosen_configs(heuristics: Any, plain: Callable[..., Any]) -> Callable[..., Any]:  # noqa: ANN401
    """Wraps ``cached_autotune``, which receives a generated kernel's configs: CPU kernels get Silo's configs."""

    @wraps(plain)
    def cached_autotune(
        size_hints: Any,  # noqa: ANN401
        configs: list[Any],
        triton_meta: Any,  # noqa: ANN401
        heuristic_type: Any,  # noqa: ANN401
        filename: str | None = None,
        inductor_meta: Any = None,  # noqa: ANN401
        *rest: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        if triton_meta is None or getattr(triton_meta.get("device"), "type", None) != "cpu" or not size_hints:
            return plain(size_hints, configs, triton_meta, heuristic_type, filename, inductor_meta, *rest, **named)

        def decorated(function: Any) -> Any:  # noqa: ANN401
            generated = GeneratedKernel(
                heuristic_type.name,
                dict(size_hints),
                tuple(dict(config.kwargs) for config in configs),
                dict(inductor_meta or {}),
                str(getattr(function, "src", "")),
            )
            warps, stages = configs[0].num_warps, configs[0].num_stages
            chosen = [
                heuristics.Config(dict(blocks), num_warps=warps, num_stages=stages) for blocks in blocks_for(generated)
            ]
            plain_result = plain(
                size_hints, chosen or configs, triton_meta, heuristic_type, filename, inductor_meta, *rest, **named
            )
            return plain_result(function)

        return decorated

    return cached_autotune


# Part of the text of every kernel that Inductor generates for the CPU.
_CPU_DEVICE = "DeviceProperties(type='cpu'"


def in_process(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``AsyncCompile.triton``: CPU kernels are compiled in this process, because torch's workers lack Silo.

    If torch's compile workers run, torch calls this method a first time while it still generates code, and then does
    not pass the device. The device is therefore looked up in the kernel's text too.
    """

    @wraps(plain)
    def triton(self: Any, kernel_name: str, source_code: str, device_str: str = "cuda") -> Any:  # noqa: ANN401
        if device_str != "cpu" and _CPU_DEVICE not in source_code:
            return plain(self, kernel_name, source_code, device_str)
        return without_workers(plain, self, kernel_name, source_code, device_str)

    return triton


def without_workers(plain: Callable[..., Any], compiling: Any, *words: str) -> Any:  # noqa: ANN401  # torch's objects
    """Calls ``AsyncCompile.triton`` so that this process, and no worker, compiles the kernel. Returns its result.

    Without workers, the result is the kernel itself. If torch has workers, the result is a finished future of the
    kernel, because torch's scheduler then asserts that it gets a ``LambdaFuture`` with an inner future, and waits for
    several such futures at once.
    """
    pooled = compiling.use_process_pool()
    compiling.use_process_pool = _no_pool
    try:
        kernel = plain(compiling, *words)
    finally:
        del compiling.use_process_pool
    if not pooled:
        return kernel
    from torch._inductor.codecache import LambdaFuture  # noqa: PLC0415  # heavy

    return kernel if isinstance(kernel, LambdaFuture) else finished(kernel)


def finished(kernel: Any) -> Any:  # noqa: ANN401
    """Returns torch's ``LambdaFuture`` for a kernel that exists already; its inner future is finished too."""
    from torch._inductor.codecache import LambdaFuture  # noqa: PLC0415  # heavy

    done: Future[Any] = Future()
    done.set_result(kernel)
    return LambdaFuture(lambda: kernel, future=done)


# Kinds of kernels that are correct for any block size, even for one element. So one element may be written before
# another element of the block is read, without a barrier. A kernel of another kind may need a barrier between that
# write and that read; it does not get the option ``cpu_elements_apart``, so the compiler keeps the barrier.
_ANY_BLOCKS = frozenset({"POINTWISE", "REDUCTION", "PERSISTENT_REDUCTION"})


def own_promises(plain: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Wraps ``CachingAutotuner._create_compile_options``: adds compile options that hold for generated CPU kernels.

    ``cpu_launch_atomics``: a generated kernel's atomics go to its own results, which no other launch accesses before
    the call ends. ``cpu_elements_apart``: elements may be computed in any order and blocks may have any length.
    Inductor's C++ code for the CPU relies on both facts, too. A kernel that a user wrote may need stronger guarantees,
    so it gets neither option.
    """

    @wraps(plain)
    def create_compile_options(self: Any, cfg: Any, compile_meta: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
        options = plain(self, cfg, compile_meta)
        if compile_meta.get("device_type") == "cpu" and self.heuristic_type.name != "USER_AUTOTUNE":
            options["cpu_launch_atomics"] = True
            options["cpu_elements_apart"] = self.heuristic_type.name in _ANY_BLOCKS
        return options

    return create_compile_options


def never_unwrapped(plain: Callable[[Any, str], bool]) -> Callable[[Any, str], bool]:
    """Wraps ``GraphLowering.is_unspec_arg``, which decides whether a 0-dimensional tensor is passed as a number.

    GPUs need the number, because they cannot read a tensor in host memory. A CPU kernel can read it, and must get the
    tensor if it writes its result there, so for CPUs the answer is False.
    """

    @wraps(plain)
    def is_unspec_arg(self: Any, name: str) -> bool:  # noqa: ANN401
        return plain(self, name) and self.get_current_device_or_throw().type != "cpu"

    return is_unspec_arg


def without_sorting(plain: Any) -> Any:  # noqa: ANN401  # a class method
    """Wraps ``TritonScheduling.get_backend_features``: on CPUs torch's own operator sorts, as with its C++ backend.

    Inductor's Triton code sorts short rows by a network of compare operations. That suits a GPU; on a CPU it takes 1.1
    to 30 times as long as torch's operator.
    """

    @wraps(plain.__func__)
    def get_backend_features(cls: Any, device: Any) -> Any:  # noqa: ANN401
        features = plain.__func__(cls, device)
        if getattr(device, "type", None) != "cpu":
            return features
        return type(features)(feature for feature in features if feature.name != "SORT")

    return classmethod(get_backend_features)


def rows_in_loops(plain: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Wraps ``TritonKernel.should_use_persistent_reduction``, which decides whether a program reads whole rows at once.

    For a CPU kernel whose loads never run along the rows, the answer is False: a loop over the elements of a row then
    sums many adjacent rows in parallel.
    """

    @wraps(plain)
    def should_use_persistent_reduction(self: Any) -> bool:  # noqa: ANN401
        if not plain(self):
            return False
        scores: Mapping[str, Any] = self.tiling_scores or {}
        devices: set[str] = {node.get_device().type for node in self.features.scheduler_nodes()}
        return devices != {"cpu"} or scores.get("r0_") != 0

    return should_use_persistent_reduction


def bool_sums_by_torch(lowering: Any, plain: Callable[..., Any]) -> Callable[..., Any]:  # noqa: ANN401
    """Wraps ``lowering.index_put_impl_``: on CPUs torch's own operator accumulates booleans into a tensor.

    Since torch 2.15 Inductor writes an atomic "or" for this, which Triton refuses for booleans. For GPUs, torch itself
    uses this operator.
    """

    @wraps(plain)
    def index_put_impl_(
        self: Any,  # noqa: ANN401
        indices: Any,  # noqa: ANN401
        values: Any,  # noqa: ANN401
        accumulate: Any,  # noqa: ANN401
        check: Any,  # noqa: ANN401
        *rest: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        kind: Any = lowering.torch
        if not accumulate or self.get_dtype() is not kind.bool or getattr(self.get_device(), "type", None) != "cpu":
            return plain(self, indices, values, accumulate, check, *rest, **named)
        if self.get_size():
            return lowering.index_put_fallback(self, indices, values, accumulate)
        return lowering.view(lowering.index_put_fallback(lowering.view(self, [1]), indices, values, accumulate), [])

    return index_put_impl_


def _no_pool() -> bool:
    return False


# ---- Native launchers of Inductor's compiled kernels for the CPU ----

_notices = Notices()


def served_launcher(heuristics: Any, plain: Callable[[Any], Any]) -> Callable[[Any], Any]:  # noqa: ANN401
    """Wraps ``TritonCompileResult.make_launcher``: CPU kernels get a native launcher of Silo.

    Kernels of other devices, and kernels that Silo does not support, keep torch's launcher.
    """

    @wraps(plain)
    def make_launcher(self: Any) -> Any:  # noqa: ANN401  # a TritonCompileResult
        if self.compile_meta.get("device_type") != "cpu":
            return plain(self)
        # since the last call, a kernel for a GPU may have set Triton's driver
        heuristics.triton_helpers.set_driver_to_cpu()
        launcher = plain(self)  # torch's launcher, from which the attributes are copied
        try:
            ours = _generated(heuristics, self, _native_launcher(self.kernel))
        except SiloError as error:
            _log_fallback(str(self.inductor_meta.get("kernel_name", "a kernel")), str(error))
            return launcher
        members: dict[str, Any] = launcher.__dict__
        for name, value in members.items():
            setattr(ours, name, value)
        return ours

    return make_launcher


def _native_launcher(compiled: Any) -> Launcher:  # noqa: ANN401  # Triton's CompiledKernel
    """Returns a launcher of Triton's compiled code without a guard, because Inductor only passes arguments that fit."""
    blocked = adapter.launch_hooks()
    if blocked:
        raise UnsupportedError(blocked)
    program = adapter.read_compiled(compiled)
    launch = read_launch(program)
    described = getattr(compiled.run, "described", None)
    if described is None:
        raise UnsupportedError("another backend than Silo's compiled it")
    _, signature = described
    (device,) = devices_of_kind("cpu")
    loaded: Any = device.load(
        launch, program.blob, program.blob_kind, program.entry, consent=consent_to(program, launch)
    )
    return make_bound_launcher(program.entry, bind(loaded, launch, signature, Specialization(), {}), signature)


def _generated(heuristics: Any, result: Any, native: Launcher) -> Any:  # noqa: ANN401
    """Returns the launching function for Inductor's code: it computes the grid and passes the kernel's parameters."""
    function = result.kernel.src.fn
    call_args, def_args, _ = result._get_arg_lists(function.arg_names, heuristics.get_constexprs(function))  # noqa: SLF001
    types = result.kernel.src.signature
    passed = [
        call_argument
        for name, call_argument in zip(function.arg_names, call_args, strict=True)
        if types.get(name) != "constexpr"
    ]

    def runner(x: int, y: int, z: int, *arguments: object) -> None:
        native[(x, y, z)](*arguments)

    return result._gen_launcher_code(  # noqa: SLF001
        {"runner": runner}, def_args, ["grid_0", "grid_1", "grid_2", *passed]
    )


def _log_fallback(kernel: str, reason: str) -> None:
    message = f"{kernel} is launched by Triton's launcher, at its cost (about a microsecond): {reason}"
    _notices.once(message, message)
