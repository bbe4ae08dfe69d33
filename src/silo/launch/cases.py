"""Arrays of cases, made by the native generator for the library asked for: the same numbers in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from silo.core.host_arrays import has_numpy, numpy_dtype, require_numpy
from silo.core.programs import EvalError
from silo.core.recipes import ArrayRecipe
from silo.errors import CaseError, ExpressionError
from silo.launch import native
from silo.launch.buffers import Buffer
from silo.launch.frameworks import torch_with_gpu
from silo.settings import case_allowance, settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LIBRARIES", "default_library", "fill", "fill_into", "materialize", "refuse_large"]


def fill_into(recipe: ArrayRecipe, out: object) -> None:
    """Write every element of the recipe, in C order, to a contiguous writable buffer of its size."""
    if recipe.own is not None:
        if recipe.size:  # a view of nothing has no bytes to cast to
            memoryview(cast("Any", out)).cast("B")[:] = recipe.own_bytes(_tabulate)
        return
    params = recipe.fill_params
    element = recipe.dtype
    native.generate(
        int(recipe.fill),
        element.code,
        element.bits,
        recipe.seed,
        0,
        recipe.size,
        float(params.a),
        float(params.b),
        params.low,
        params.span,
        out,
    )


def _tabulate(program: bytes, shape: tuple[int, ...], out: object) -> None:
    error, number = native.tabulate(program, shape, out)
    if error:
        place: list[int] = []
        for extent in reversed(shape):
            number, index = divmod(number, extent)
            place.insert(0, index)
        raise ExpressionError(f"at {place}: {EvalError(error).name.lower()}")


def fill(recipe: ArrayRecipe) -> NDArray[Any]:
    """The elements, flat, in numpy: what ``core.generator.generate`` makes, some hundred times faster."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    bits = np.empty(recipe.size, dtype=f"uint{recipe.dtype.bits}")
    fill_into(recipe, bits)
    return cast("NDArray[Any]", bits.view(numpy_dtype(recipe.dtype)))


def materialize(recipe: ArrayRecipe, library: str | None = None, device: str = "cpu") -> Any:  # noqa: ANN401
    """The array of a recipe, the same bytes in every library and on every device.

    Args:
        recipe: what to make.
        library: one of :data:`LIBRARIES`; None: on the CPU numpy where it is installed, on a GPU torch where it is
            loaded, and Buffers elsewhere.
        device: ``cpu``, or a GPU as ``cuda:0``.

    Raises:
        CaseError: an unknown library, or one that has no such dtype, layout or device.
        DeviceError: the device is not here, or has no memory left.
    """
    chosen = default_library(device) if library is None else library
    if chosen not in _MAKERS:
        raise CaseError(f"cases make arrays of {', '.join(LIBRARIES)}, not of {chosen!r}")
    what = f"an array of shape {list(recipe.shape)} and dtype {recipe.dtype}"
    refuse_large(recipe.bytes_to_make, what)
    try:
        return _MAKERS[chosen](recipe, device)
    except MemoryError as error:
        raise CaseError(f"{what} takes {_size(recipe.bytes_to_make)}, and this machine has not as much left") from error


def refuse_large(needed: int, what: str) -> None:
    """``CaseError`` where arrays would take more memory than those of a case may."""
    allowed = case_allowance()
    if needed > allowed:
        why = "half of the memory that this process may use" if settings().case_bytes is None else "SILO_CASE_BYTES"
        raise CaseError(
            f"{what} would take {_size(needed)} of memory, and the arrays of a case may take {_size(allowed)} ({why}); "
            "take a smaller case, or set SILO_CASE_BYTES if this one is what you want"
        )


def _size(count: int) -> str:
    return f"{count / 2**30:.3g} GiB" if count >= 1 << 30 else f"{count / 2**20:.3g} MiB"


def default_library(device: str) -> str:
    """What makes the arrays of cases on a device where nobody says."""
    kind = device.partition(":")[0]
    if kind == "cpu":
        return "numpy" if has_numpy() else "buffer"
    return "buffer" if torch_with_gpu(kind) is None else "torch"


def _numpy(recipe: ArrayRecipe, device: str) -> object:
    require_numpy("--arrays numpy")
    if device != "cpu":
        raise CaseError(f"numpy has no arrays on {device}: --arrays torch or --arrays buffer")
    return recipe.host(fill)


def _torch(recipe: ArrayRecipe, device: str) -> object:
    import torch as library  # noqa: PLC0415  # asked for by name

    torch: Any = library  # its stubs are partial
    dtype = getattr(torch, recipe.dtype.name, None)
    if dtype is None:
        raise CaseError(f"torch {torch.__version__} has no dtype {recipe.dtype}")
    if recipe.strides is None:
        tensor = torch.empty(recipe.shape, dtype=dtype)
        if recipe.size:
            # numpy shares the memory as bytes, which both libraries have, whatever the dtype.
            fill_into(recipe, tensor.view(-1).view(torch.uint8).numpy())
        return _moved(tensor, device)
    host = recipe.host(fill)
    bits = host.view(f"int{recipe.dtype.bits}")
    if device == "cpu":
        return torch.from_numpy(bits).view(dtype)
    # What lies between the elements is moved too: a kernel may read it.
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(host.shape, recipe.strides, strict=True))
    flat = _flat(bits, span if host.size else 0)
    return _moved(torch.from_numpy(flat), device).view(dtype).as_strided(host.shape, recipe.strides)


def _moved(tensor: Any, device: str) -> Any:  # noqa: ANN401  # a tensor
    """On a GPU under torch's name for it, which is CUDA's for AMD too."""
    if device == "cpu":
        return tensor
    index = device.partition(":")[2] or "0"
    try:
        return tensor.to(f"cuda:{index}")
    except (RuntimeError, AssertionError) as error:
        raise CaseError(f"torch makes no array on {device}: {error}") from None


def _flat(bits: NDArray[Any], span: int) -> NDArray[Any]:
    """The memory of a strided array from its first element on, ``span`` elements."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    return np.lib.stride_tricks.as_strided(bits, (span,), (bits.itemsize,))


def _buffer(recipe: ArrayRecipe, device: str) -> object:
    buffer = Buffer(recipe.shape, recipe.dtype)
    if recipe.strides not in (None, buffer.strides):
        raise CaseError("a silo.Buffer is row-major; a case with other strides needs numpy or torch")
    fill_into(recipe, buffer.raw)
    return buffer if device == "cpu" else Buffer.of(buffer.raw, recipe.dtype, recipe.shape, device)


_MAKERS: dict[str, Callable[[ArrayRecipe, str], object]] = {"numpy": _numpy, "torch": _torch, "buffer": _buffer}
LIBRARIES = tuple(_MAKERS)
