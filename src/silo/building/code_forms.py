"""The forms of an artifact's code (TTIR, PTX, SASS, C, ...), each made on demand.

:class:`CodeForms` is part of the results of ``k.compiled(...)`` and ``k.warmup(...)``.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from silo.artifacts.artifact import Artifact, BlobRef, decoded
from silo.artifacts.disassembly import DISASSEMBLED, disassemble
from silo.artifacts.runs_on import capability
from silo.building.loaded_kernels import bound_launcher, stored_blob
from silo.compile.toolchain import select_compiler
from silo.core.device import drivers
from silo.core.protocols import ShowsCode, Source
from silo.core.values import dtype
from silo.errors import ArgumentError, BundleError, SourceError
from silo.frozen import replace
from silo.launch import native
from silo.machine.device_plugins import default_device
from silo.machine.process_session import session
from silo.sources.kinds import brought_tools, kind_near
from silo.sources.source_kind import NamesDtypes

if TYPE_CHECKING:
    from silo.building.kernel_declaration import DeclaredKernel
    from silo.core.config import Config
    from silo.core.variant import CompileJob, Variant
    from silo.launch.runtime import Binding, Launcher

__all__ = [
    "CODE_FORMS",
    "CodeForms",
    "CompiledKernel",
    "code_metadata",
    "code_text",
    "compiled_kernel",
    "default_place",
    "kinds_with",
    "stand_in",
]

# The forms that a user can request. _NAMES maps a form to its key in CodeForms, if the key is another word.
CODE_FORMS = ("ttir", "ttgir", "cu", "c", "c++", "llvm", "ptx", "sass", "amdgcn", "asm")
_NAMES = {"llvm": "llir"}


def kinds_with(form: str) -> tuple[str, ...]:
    """Returns the kinds of targets if only their code has this form; () if code for any kind may have the form.

    >>> kinds_with("ttgir"), kinds_with("ttir")
    (('cuda', 'hip'), ())
    """
    return tuple(driver.kind for driver in drivers() if form in driver.code_forms)


class CodeForms(Mapping[str, str | bytes]):
    """The forms of code by name: ``forms["ptx"]`` is text; the binary (``cubin``, ``hsaco``, ``so``) is bytes.

    Iterating yields the names that need no disassembler. The disassembled forms are made on demand: ``sass`` (of a
    cubin), ``amdgcn`` (of an hsaco, if the kernel's source is not in this process) and ``asm`` (of a shared object).
    Raises KeyError for a missing form.
    """

    def __init__(
        self,
        artifact: Artifact,
        read_blob: Callable[[BlobRef], bytes],
        source: Source | None = None,
        variant: Variant | None = None,
    ) -> None:
        self._artifact = artifact
        self._read_blob = read_blob
        self._source = source
        self._variant_asked_for = variant or artifact.variant
        self._texts: dict[str, str | bytes] = {}

    def __getitem__(self, name: str) -> str | bytes:
        if name not in self._texts:
            self._texts[name] = self._make(name)
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._forms, *self._sidecars, self._artifact.blob.kind)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @cached_property
    def _sidecars(self) -> dict[str, BlobRef]:
        return {ref.kind: ref for ref in self._artifact.sidecars}

    @cached_property
    def _compiler(self) -> ShowsCode | None:
        if self._source is None:
            return None
        compiler = select_compiler(self._source.kind, self._variant_asked_for.target)
        return compiler if isinstance(compiler, ShowsCode) else None

    @property
    def _forms(self) -> tuple[str, ...]:
        return () if self._compiler is None else self._compiler.code_forms(self._variant_asked_for.target)

    @cached_property
    def _job(self) -> CompileJob:
        assert self._source is not None
        return (
            select_compiler(self._source.kind, self._variant_asked_for.target)
            .lower(self._source, self._variant_asked_for)
            .job
        )

    def _make(self, name: str) -> str | bytes:
        blob = self._artifact.blob
        if name == blob.kind:
            return self._read_blob(blob)
        if name in self._sidecars:
            return decoded(ref := self._sidecars[name], self._read_blob(ref))
        if self._compiler is not None and (name in self._forms or name == "llir"):
            return self._compiler.code_form(self._job, name)
        if DISASSEMBLED.get(blob.kind) == name:
            return disassemble(self._read_blob(blob), blob.kind, brought_tools())
        raise KeyError(name)

    def __repr__(self) -> str:
        return f"<code of {self._artifact.variant.kernel}: {', '.join(self)}>"


def code_text(forms: CodeForms, form: str, artifact: Artifact, *, bundled: bool) -> str:
    """Returns one form of code as text.

    Raises:
        SourceError, BundleError: the code does not have the form, or the bundle does not hold it; the message lists the
            available forms.
        ToolchainError: a tool that makes the form is missing.
        CompileError: the form could not be made.
    """
    try:
        text = forms[_NAMES.get(form, form)]
    except KeyError:
        target = artifact.variant.target
        kinds = kinds_with(form)
        if kinds and target.kind not in kinds:
            raise SourceError(
                f"{artifact.variant.kernel}: code for {target} has no {form}; code for {' and '.join(kinds)} has: "
                "name such a target with --target"
            ) from None
        if bundled:
            others = ", ".join(_held(forms, artifact))
            raise BundleError(
                f"{artifact.variant.kernel}: the bundle keeps no {form} of its code for {target}, it has {others}; ask "
                f"the Python file that it was built from: silo inspect FILE.py --code {form} --target {target}"
            ) from None
        raise SourceError(
            f"{artifact.variant.kernel}: there is no {form} of its code for {target}; there is "
            f"{', '.join(_held(forms, artifact))}"
        ) from None
    assert isinstance(text, str)
    return text


def _held(forms: CodeForms, artifact: Artifact) -> list[str]:
    names = [name for name in forms if name != artifact.blob.kind]
    return [*names, *filter(None, [DISASSEMBLED.get(artifact.blob.kind)])]


_MOST_CPU_THREADS = 2**31 - 1
_DEFAULTS = {"num_warps": 4, "num_stages": 3}  # a CPU ignores these options, but callers read them


class CompiledTarget(NamedTuple):
    """The code's target as Triton's ``GPUTarget``: ("cuda", 90, 32), ("hip", "gfx942", 64), or ("cpu", level, 1)."""

    backend: str
    arch: int | str
    warp_size: int


class CompiledKernel:
    """The compiled code that serves one call, ready to launch: ``compiled[grid](*args)``.

    A launch runs no guard, as with :meth:`silo.Kernel.bind`: the arguments must be like those that the code was
    compiled for.

    Attributes:
        name: the symbol that runs.
        config: the config that was chosen.
        asm: maps the name of each form of the code to its text, made on demand: ``ttir``, ``ttgir``, ``llir``, ``ptx``,
            ``sass``, ``amdgcn``, ``c``; and the binary's name to its bytes (``cubin``, ``hsaco``, ``so``).
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
    def metadata(self) -> Any:  # noqa: ANN401  # a named tuple whose members vary
        """The launch parameters, by Triton's names."""
        return code_metadata(self._artifact)

    @property
    def n_regs(self) -> int:
        """Registers per thread. 1 on a CPU, because programs divide by it to compute the occupancy."""
        registers = self._artifact.launch.registers
        return 1 if registers is None else registers

    @property
    def n_spills(self) -> int:
        """Values per thread that are kept in local memory because registers ran out."""
        return self._artifact.launch.spills or 0

    @property
    def n_max_threads(self) -> int:
        """The most threads of a block."""
        launch = self._artifact.launch
        return _MOST_CPU_THREADS if self._artifact.variant.target.kind == "cpu" else launch.threads

    @property
    def kernel(self) -> bytes:
        """The binary, as bytes."""
        data = self.asm[self._artifact.blob.kind]
        assert isinstance(data, bytes)
        return data

    def _init_handles(self) -> None:
        """Does nothing, because the code is already loaded. Programs call it to load a compiled kernel of Triton."""

    @cached_property
    def _launcher(self) -> Any:  # noqa: ANN401
        return self._make_launcher()

    def __getitem__(self, grid: Any) -> Any:  # noqa: ANN401  # a callable
        return self._launcher[grid]

    def __repr__(self) -> str:
        return f"<compiled {self._artifact.variant.kernel} for {self._artifact.variant.target}, {self.config}>"


def compiled_kernel(kernel: DeclaredKernel, artifact: Artifact, binding: Binding, guarded: Launcher) -> CompiledKernel:
    """Makes the compiled kernel that serves a call; ``kernel`` was declared in this process."""
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


def code_metadata(artifact: Artifact) -> Any:  # noqa: ANN401  # a named tuple whose members vary
    """Returns the launch parameters and the config's options, by Triton's names; see :class:`CompiledKernel`."""
    launch, target = artifact.launch, artifact.variant.target
    on_cpu = target.kind == "cpu"
    options = {**(_DEFAULTS if on_cpu else {}), **artifact.variant.config.as_dict()}
    members: dict[str, Any] = {
        **options,
        "name": launch.entry,
        "num_warps": options.get("num_warps", 4) if on_cpu else launch.num_warps,
        "num_ctas": launch.cluster[0] * launch.cluster[1] * launch.cluster[2],
        "cluster_dims": launch.cluster,
        "shared": max(launch.shared_bytes, int(on_cpu)),  # 1 on a CPU, like ``n_regs``, because programs divide by it
        "warp_size": 1 if on_cpu else launch.threads // max(launch.num_warps, 1),
        "global_scratch_size": launch.scratch_bytes,
        "global_scratch_align": launch.scratch_align,
        "profile_scratch_size": launch.profile_bytes,
        "profile_scratch_align": launch.profile_align,
        "launch_cooperative_grid": launch.cooperative,
        "launch_pdl": launch.pdl,
    }
    arch = capability(target) or target.arch
    members["target"] = CompiledTarget(target.kind, arch, members["warp_size"])
    names = sorted(name for name in members if name.isidentifier() and not name.startswith("_"))
    return namedtuple("KernelMetadata", names)(**{name: members[name] for name in names})  # noqa: PYI024  # pyright: ignore[reportUntypedNamedTuple]  # the members vary


def default_place() -> str:
    """Returns the device of a call without arrays: the current GPU, else the first GPU, else the CPU."""
    first = default_device()
    return "cpu" if first.memory.is_host else f"{first.target.kind}:{native.gpu_current(first.target.kind) or 0}"


def stand_in(value: object, device: Callable[[], str]) -> object:
    """Returns an array in place of a dtype that ``warmup`` was given; any other value is returned unchanged.

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
        torch_dtype = dtype(name)
    except KeyError as error:
        raise ArgumentError(f"warmup takes a dtype in place of an array, and not {value}: {error.args[0]}") from None
    from silo.launch.buffers import Buffer  # noqa: PLC0415  # few calls of warmup pass dtypes

    return Buffer(1, torch_dtype, device())
