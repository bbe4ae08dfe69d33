"""``silo.emulated_metal``: replaces ``torch.mps.compile_shader`` and MLX's ``metal_kernel`` by the emulator."""

from __future__ import annotations

import math
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeAlias

from silo.errors import ToolchainError
from silo.frozen import frozen
from silo.kinds.metal.front.variant_text import MLX_POSITIONS, SMALL
from silo.kinds.metal.programs.shader_library import EmulatedLibrary

__all__ = ["EmulatedMetal", "EmulatedMlxKernel", "MlxTexts", "emulated_metal"]


# ---- A replacement for the kernels of mlx.core.fast.metal_kernel ----


_AXES = 3
# Metal's types, by MLX's names of dtypes, in the signatures that MLX writes; and the text that MLX puts before every
# kernel.
_TYPES = {"bool_": "bool", "bool": "bool", "float32": "float", "float16": "float16_t", "bfloat16": "bfloat16_t"}
_BEFORE = "#include <metal_stdlib>\nusing namespace metal;\ntypedef half float16_t;\ntypedef bfloat bfloat16_t;\n"
_LAYOUT = ("_shape", "_strides", "_ndim")


@frozen
class MlxTexts:
    """The arguments of ``metal_kernel``: name, inputs, outputs, body and header."""

    name: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    source: str
    header: str
    atomic_outputs: bool


class EmulatedMlxKernel:
    """A kernel that is called like MLX's own ``metal_kernel``: all arguments by keyword; returns new arrays.

    Arrays are MLX's, on the CPU. Floats that the kernel does not write are NaN, other numbers have bytes 0x55; with MLX
    itself they are undefined. ``texts`` has the full text of each call, as MLX would have compiled it.
    """

    def __init__(self, mx: Any, texts: MlxTexts, *, ensure_row_contiguous: bool) -> None:  # noqa: ANN401  # mlx.core
        if not texts.output_names:
            raise ValueError("[metal_kernel] Must specify at least one output.")
        self._mx, self._texts, self._contiguous = mx, texts, ensure_row_contiguous
        self._libraries: dict[str, EmulatedLibrary] = {}
        self.texts: list[str] = []

    def __call__(
        self,
        *,
        inputs: Sequence[Any],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[Any],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        template: Sequence[tuple[str, Any]] | None = None,
        init_value: float | None = None,
        verbose: bool = False,
        stream: object = None,
    ) -> list[Any]:
        """Runs the kernel.

        Raises:
            ValueError: counts, a grid or a threadgroup that MLX refuses.
            ArgumentError: an input has another layout than the kernel reads.
            CompileError: clang refuses the text.
        """
        del verbose, stream
        mx, texts = self._mx, self._texts
        for label, values, names in (
            ("inputs", inputs, texts.input_names),
            ("output_shapes", output_shapes, texts.output_names),
            ("output_dtypes", output_dtypes, texts.output_names),
        ):
            if len(values) != len(names):
                raise ValueError(
                    f"[metal_kernel] Expected `{label}` to have size {len(names)} but got size {len(values)}."
                )
        if len(grid) != _AXES or len(threadgroup) != _AXES or min(*grid, *threadgroup) < 1:
            raise ValueError(f"[metal_kernel] a grid {grid} of threads in groups of {threadgroup} has no threads")
        if template:
            raise ValueError("[metal_kernel] the emulator takes no template=: write the types out")
        arrays = [input_ if isinstance(input_, mx.array) else mx.array(input_) for input_ in inputs]
        if self._contiguous:
            arrays = [mx.contiguous(array) for array in arrays]
        results = [
            self._fresh(shape, kind, init_value) for shape, kind in zip(output_shapes, output_dtypes, strict=True)
        ]
        mx.async_eval(arrays, results)
        mx.synchronize()
        passed: list[Any] = []
        text = self._text(arrays, [_type(output_dtype) for output_dtype in output_dtypes], passed)
        self.texts.append(text)
        library = self._libraries.get(text)
        if library is None:
            library = self._libraries[text] = EmulatedLibrary(text)
        group = tuple(min(limit, count) for limit, count in zip(threadgroup, grid, strict=True))
        getattr(library, self._name)(*passed, *results, threads=grid, group_size=group)
        return results

    @property
    def _name(self) -> str:
        return f"custom_kernel_{self._texts.name}"

    def _fresh(self, shape: Sequence[int], kind: Any, init_value: float | None) -> Any:  # noqa: ANN401
        mx = self._mx
        if init_value is not None:
            return mx.full(shape, init_value, kind)
        if _type(kind) == "bool":
            return mx.zeros(shape, kind)
        if mx.issubdtype(kind, mx.floating):
            return mx.full(shape, math.nan, kind)
        return mx.full((*shape[:-1], (shape[-1] if shape else 1) * kind.size), 0x55, mx.uint8).view(kind).reshape(shape)

    def _text(self, arrays: Sequence[Any], results: Sequence[str], passed: list[Any]) -> str:
        """Returns the whole text, with MLX's signature; adds the inputs, their shapes and strides to ``passed``."""
        texts = self._texts
        parameters: list[str] = []

        def add(kind: str, name: str, value: object = None) -> None:
            parameters.append(f"  {kind} {name} [[buffer({len(parameters)})]]")
            passed.append(value)

        for name, array in zip(texts.input_names, arrays, strict=True):
            space = "constant" if array.size < SMALL else "device"
            add(f"const {space} {_type(array.dtype)}{'*' if array.ndim else '&'}", name, array)
            if not array.ndim:
                continue
            facts = ((tuple(array.shape), "int*"), (_strides(array), "int64_t*"), (array.ndim, "int&"))
            for suffix, (value, kind) in zip(_LAYOUT, facts, strict=True):
                if f"{name}{suffix}" in texts.source:
                    add(f"const constant {kind}", f"{name}{suffix}", self._numbers(value, kind))
        inputs = len(passed)
        for name, kind in zip(texts.output_names, results, strict=True):
            add(f"device {f'atomic<{kind}>' if texts.atomic_outputs else kind}*", name)
        del passed[inputs:]
        words = [word for word in MLX_POSITIONS if word in texts.source]
        parameters += [f"  {MLX_POSITIONS[word]} {word} [[{word}]]" for word in words]
        listed = ",\n".join(parameters)
        return f"{_BEFORE}{texts.header}[[kernel]] void {self._name}(\n{listed}) {{\n{texts.source}\n}}\n"

    def _numbers(self, value: object, kind: str) -> Any:  # noqa: ANN401
        return self._mx.array(value, self._mx.int64 if kind.startswith("int64") else self._mx.int32)


def _type(kind: Any) -> str:  # noqa: ANN401  # a dtype of MLX
    word = str(kind).rpartition(".")[2]
    return _TYPES.get(word, f"{word}_t")


def _strides(array: Any) -> tuple[int, ...]:  # noqa: ANN401
    """Returns the strides of a row-major array of this shape: MLX does not expose an array's own strides."""
    strides: list[int] = []
    step = 1
    for extent in reversed(array.shape):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)


# ---- silo.emulated_metal ----


_Place: TypeAlias = tuple[ModuleType, str, object]

NAME = "Silo's emulator of Metal"


class EmulatedMetal:
    """The objects made in a block of :func:`emulated_metal`: ``libraries`` of torch, ``kernels`` of MLX, in order."""

    def __init__(self) -> None:
        self.libraries: list[EmulatedLibrary] = []
        self.kernels: list[EmulatedMlxKernel] = []

    def compile_shader(self, source: str) -> EmulatedLibrary:
        """Replaces ``torch.mps.compile_shader``. Raises SourceError."""
        library = EmulatedLibrary(source)
        self.libraries.append(library)
        return library

    def metal_kernel(
        self,
        name: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        source: str,
        header: str = "",
        ensure_row_contiguous: bool = True,  # noqa: FBT001, FBT002  # MLX's own signature
        atomic_outputs: bool = False,  # noqa: FBT001, FBT002
        compile_options: Mapping[str, str] | None = None,
    ) -> EmulatedMlxKernel:
        """Replaces ``mlx.core.fast.metal_kernel``. Raises ValueError for the same arguments as MLX."""
        if unknown := sorted({*(compile_options or {})} - {"math_mode"}):
            raise ValueError(f"[metal_kernel] Unknown compile option `{unknown[0]}`.")
        texts = MlxTexts(name, tuple(input_names), tuple(output_names), source, header, atomic_outputs)
        kernel = EmulatedMlxKernel(sys.modules["mlx.core"], texts, ensure_row_contiguous=ensure_row_contiguous)
        self.kernels.append(kernel)
        return kernel


@contextmanager
def emulated_metal() -> Generator[EmulatedMetal]:
    """Makes ``torch.mps.compile_shader`` compile for the CPU within the block, and run kernels on CPU tensors.

    If the program has imported ``mlx.core``, ``mlx.core.fast.metal_kernel`` does the same for MLX's arrays on the CPU.
    Results and times are the emulator's: the times do not indicate the speed of Metal. Tensors stay on the CPU, the
    device ``mps`` does not exist, and ``torch.mps.synchronize()`` returns at once. The change applies to all threads.

    Raises:
        ToolchainError: neither torch nor MLX is available.
    """
    emulated = EmulatedMetal()
    places = [*_torch_places(emulated), *_mlx_places(emulated)]
    if not places:
        raise ToolchainError(
            "torch, whose compile_shader is emulated, is not installed, and mlx.core, whose metal_kernel is, is not "
            "imported"
        )
    before = [(module, name, getattr(module, name, None), hasattr(module, name)) for module, name, _ in places]
    for module, name, value in places:
        setattr(module, name, value)
    try:
        yield emulated
    finally:
        for module, name, value, was_there in before:
            if was_there:
                setattr(module, name, value)
            else:
                delattr(module, name)


def _torch_places(emulated_metal: EmulatedMetal) -> list[_Place]:
    try:
        import torch  # noqa: PLC0415  # its functions are replaced
        import torch.mps  # noqa: PLC0415
    except ImportError:
        return []
    native: Any = torch._C  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # programs read the GPU's name here
    return [
        (torch.mps, "compile_shader", emulated_metal.compile_shader),
        (torch.mps, "synchronize", lambda: None),
        (native, "_mps_get_name", lambda: NAME),
    ]


def _mlx_places(emulated_metal: EmulatedMetal) -> list[_Place]:
    fast: Any = getattr(sys.modules.get("mlx.core"), "fast", None)
    return [] if fast is None else [(fast, "metal_kernel", emulated_metal.metal_kernel)]
