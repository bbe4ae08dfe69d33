"""The results of ``k.compiled(...)`` and ``k.warmup(...)``: compiled code with the members of Triton's class."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from silo.artifacts.runs_on import capability
from silo.building.code_forms import CodeForms
from silo.building.loaded_kernels import bound_launcher, stored_blob
from silo.core.dtypes import dtype
from silo.errors import ArgumentError
from silo.frozen import replace
from silo.launch import native
from silo.machine.device_plugins import default_device
from silo.machine.process_session import session
from silo.sources.kinds import kind_near
from silo.sources.source_kind import NamesDtypes

if TYPE_CHECKING:
    from silo.artifacts.artifact import Artifact
    from silo.building.kernel_declaration import DeclaredKernel
    from silo.core.config import Config
    from silo.launch.runtime import Binding, Launcher

__all__ = ["CompiledKernel", "code_metadata", "compiled_kernel", "default_place", "stand_in"]

_MOST_CPU_THREADS = 2**31 - 1
_DEFAULTS = {"num_warps": 4, "num_stages": 3}  # a CPU ignores these, but programs read them


class CompiledTarget(NamedTuple):
    """The code's target in Triton's terms: ``cuda``, 90, 32; ``hip``, ``gfx942``, 64; ``cpu``, the level, 1."""

    backend: str
    arch: int | str
    warp_size: int


class CompiledKernel:
    """The compiled code that serves one call, ready to launch: ``compiled[grid](*args)``.

    A launch runs no guard, as with :meth:`silo.Kernel.bind`: it takes arguments like those it was compiled for.

    Attributes:
        name: the symbol that runs.
        config: the config that was chosen.
        asm: the forms of the code by name, each made on demand: ``ttir``, ``ttgir``, ``llir``, ``ptx``, ``sass``,
            ``amdgcn``, ``c``; and the binary as bytes (``cubin``, ``hsaco``, ``so``).
        metadata: ``num_warps``, ``num_ctas``, ``shared`` (bytes), ``target``, the config's options and more.
        hash: the key of the compile job.
    """

    def __init__(
        self,
        artifact: Artifact,
        forms: CodeForms,
        launcher: Callable[[], Any],
    ) -> None:
        self.name = artifact.launch.entry
        self.config: Config = artifact.variant.config
        self.asm = forms
        self.hash = artifact.job
        self._artifact = artifact
        self._make_launcher = launcher

    @cached_property
    def metadata(self) -> Any:  # noqa: ANN401  # a named tuple; its members vary
        """The launch parameters, by Triton's names."""
        return code_metadata(self._artifact)

    @property
    def n_regs(self) -> int:
        """Registers per thread. On a CPU 1: programs divide by it to compute their occupancy."""
        registers = self._artifact.launch.registers
        return 1 if registers is None else registers

    @property
    def n_spills(self) -> int:
        """Values that are kept in local memory because registers ran out."""
        return self._artifact.launch.spills or 0

    @property
    def n_max_threads(self) -> int:
        """The most threads of a block."""
        launch = self._artifact.launch
        return _MOST_CPU_THREADS if self._artifact.variant.target.kind == "cpu" else launch.threads

    @property
    def kernel(self) -> bytes:
        """The binary."""
        data = self.asm[self._artifact.blob.kind]
        assert isinstance(data, bytes)
        return data

    def _init_handles(self) -> None:
        """Does nothing: the code is loaded. Programs call it as they call Triton's."""

    @cached_property
    def _launcher(self) -> Any:  # noqa: ANN401
        return self._make_launcher()

    def __getitem__(self, grid: Any) -> Any:  # noqa: ANN401  # a callable
        return self._launcher[grid]

    def __repr__(self) -> str:
        return f"<compiled {self._artifact.variant.kernel} for {self._artifact.variant.target}, {self.config}>"


def compiled_kernel(kernel: DeclaredKernel, artifact: Artifact, binding: Binding, guarded: Launcher) -> CompiledKernel:
    """The compiled kernel for a call of a kernel of this process."""
    variant = artifact.variant
    requested = replace(variant, signature=variant.signature.without_effects())
    forms = CodeForms(artifact, lambda ref: stored_blob(session().store, artifact, ref), kernel.source, requested)

    def launcher() -> Any:  # noqa: ANN401
        return bound_launcher(
            guarded,
            kernel.source.signature,
            binding,
            variant,
            grid=None,
            release_gil=kernel.release_gil,
            constant=kernel.source.constant,
        )

    return CompiledKernel(artifact, forms, launcher)


def code_metadata(artifact: Artifact) -> Any:  # noqa: ANN401  # a named tuple; its members vary
    """The launch parameters and the config's options, by Triton's names; see :class:`CompiledKernel`."""
    launch, target = artifact.launch, artifact.variant.target
    on_cpu = target.kind == "cpu"
    options = {**(_DEFAULTS if on_cpu else {}), **artifact.variant.config.as_dict()}
    found: dict[str, Any] = {
        **options,
        "name": launch.entry,
        "num_warps": options.get("num_warps", 4) if on_cpu else launch.num_warps,
        "num_ctas": launch.cluster[0] * launch.cluster[1] * launch.cluster[2],
        "cluster_dims": launch.cluster,
        "shared": max(launch.shared_bytes, int(on_cpu)),  # 1 on a CPU, like ``n_regs``: programs divide by it
        "warp_size": 1 if on_cpu else launch.threads // max(launch.num_warps, 1),
        "global_scratch_size": launch.scratch_bytes,
        "global_scratch_align": launch.scratch_align,
        "profile_scratch_size": launch.profile_bytes,
        "profile_scratch_align": launch.profile_align,
        "launch_cooperative_grid": launch.cooperative,
        "launch_pdl": launch.pdl,
    }
    arch = capability(target) or target.arch
    found["target"] = CompiledTarget(target.kind, arch, found["warp_size"])
    names = sorted(name for name in found if name.isidentifier() and not name.startswith("_"))
    return namedtuple("KernelMetadata", names)(**{name: found[name] for name in names})  # noqa: PYI024  # pyright: ignore[reportUntypedNamedTuple]  # members by what there is


def default_place() -> str:
    """The place of a call without arrays, by the rule of calls: the current GPU, else the first, else the CPU."""
    first = default_device()
    return "cpu" if first.memory.is_host else f"{first.target.kind}:{native.gpu_current(first.target.kind) or 0}"


def stand_in(value: object, device: Callable[[], str]) -> object:
    """An array in place of a dtype that ``warmup`` was given; returns any other value unchanged.

    The array has one element on ``device``, aligned to 16 bytes. The dtype is torch's, or an object that a kernel
    language uses as a dtype.
    """
    if f"{type(value).__module__}.{type(value).__qualname__}" == "torch.dtype":
        name = str(value).rpartition(".")[2]
    else:
        kind = kind_near(value)
        name = kind.dtype_of(value) if isinstance(kind, NamesDtypes) else None
        if name is None:
            return value
    try:
        found = dtype(name)
    except KeyError as error:
        raise ArgumentError(f"warmup takes a dtype in place of an array, and not {value}: {error.args[0]}") from None
    from silo.launch.buffers import Buffer  # noqa: PLC0415  # few warm-ups are without arrays

    return Buffer(1, found, device())
