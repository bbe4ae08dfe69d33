"""Connecting array libraries when one of their arrays first appears in a call; none is imported here."""

from __future__ import annotations

import sys
from typing import Any

from silo.core.device import EXTENSION_MEMORY, DriverDeclaration
from silo.core.plugins import drivers
from silo.launch import native
from silo.launch.native import open_drivers
from silo.settings import settings

__all__ = [
    "connect_loaded",
    "connect_torch",
    "disconnect_torch",
    "is_descriptor_type",
    "notice",
    "probes",
    "torch_with_gpu",
]

# Of tensor descriptors.
_MEMBERS = frozenset(("base", "shape", "strides", "block_shape", "padding"))
_ALL_MEMBERS = _MEMBERS | {"round_f32_to_tf32"}

_connecting: set[type] = set()  # types on the way into the native table, which asks about them again


def is_descriptor_type(kind: type) -> bool:
    """Whether objects of a type are tensor descriptors: the type declares it, or is a kernel language's own type.

    A class of your own sets ``__tensor_descriptor__ = True`` and has ``base``, ``shape``, ``strides`` (elements),
    ``block_shape`` and ``padding`` (``zero`` or ``nan``). A dataclass ``TensorDescriptor`` of these, and perhaps
    ``round_f32_to_tf32``, counts without; one with more members (a layout) is for one GPU alone.
    """
    named = [base for base in kind.__mro__ if base.__name__ == "TensorDescriptor"]
    members = (frozenset[str](getattr(base, "__dataclass_fields__", ())) for base in named)
    says_so = getattr(kind, "__tensor_descriptor__", False) is True
    return says_so or any(_MEMBERS <= found <= _ALL_MEMBERS for found in members)


def notice(kind: type) -> None:
    """The native module calls this with every new argument type: it connects the type's library."""
    if kind in _connecting:
        return
    if is_descriptor_type(kind):
        native.adapt_descriptor(kind)
    elif kind.__name__ in ("Tensor", "Parameter") and kind.__module__ in ("torch", "torch.nn.parameter"):
        connect_torch()
    elif kind.__name__ in ("FakeTensor", "FunctionalTensor") and kind.__module__.startswith("torch._subclasses."):
        _connecting.add(kind)
        try:
            native.set_array_reader(kind, _refuse_traced)
        finally:
            _connecting.discard(kind)
    elif kind.__name__ == "ndarray" and kind.__module__.partition(".")[0] == "cupy":
        open_drivers()
        _connect_cupy(kind)
    elif kind.__name__ == "ArrayImpl" and kind.__module__.partition(".")[0] in ("jax", "jaxlib"):
        _connect_jax(kind)
    elif hasattr(kind, "__cuda_array_interface__") and not hasattr(kind, "__dlpack__"):
        open_drivers()  # the protocol does not say which device: the driver does


def _refuse_traced(array: object) -> None:
    """A tensor that torch traces with: torch prints a warning if its address is read."""
    raise TypeError(f"a {type(array).__name__} has no memory")


def connect_loaded() -> None:
    """Connect torch if it is loaded: calls without arrays go to its current stream."""
    global _torch_asked  # noqa: PLW0603  # once is enough: a torch tensor asks again
    if not _torch_asked and "torch" in sys.modules:
        _torch_asked = True
        connect_torch()


_torch_asked = False


def _connect_cupy(kind: type) -> None:
    cupy: Any = sys.modules["cupy"]

    def current_stream(index: int) -> int:
        if index == cupy.cuda.runtime.getDevice():
            return int(cupy.cuda.get_current_stream().ptr)
        with cupy.cuda.Device(index):
            return int(cupy.cuda.get_current_stream().ptr)

    _connecting.add(kind)
    try:
        native.set_stream_source(kind, current_stream)
    finally:
        _connecting.discard(kind)


def _connect_jax(kind: type) -> None:
    """Arrays of jax on a TPU lack an address: jax itself describes them."""
    jax: Any = sys.modules["jax"]
    places = {device: place for place, device in enumerate(jax.local_devices()) if device.platform == "tpu"}
    if not places:
        return  # a process's devices are the same to its end

    def read(array: Any) -> tuple[int, int, str, bool] | None:  # noqa: ANN401
        devices = array.devices()
        place = places.get(next(iter(devices))) if len(devices) == 1 else None
        return None if place is None else (EXTENSION_MEMORY, place, str(array.dtype), True)

    _connecting.add(kind)
    try:
        native.set_array_reader(kind, read)
    finally:
        _connecting.discard(kind)


def torch_with_gpu(kind: str) -> Any:  # noqa: ANN401  # the module, or None
    """Torch where it is loaded, built for GPUs of this kind, and finds one; else None."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_available():
        return None
    return torch if (build := _build_of(torch)) is not None and build.kind == kind else None


def _build_of(torch: Any) -> DriverDeclaration | None:  # noqa: ANN401  # the module
    """The driver that a build of torch is for; None for a build without GPUs."""
    builds = (one for one in drivers() if one.torch_build)
    return next((one for one in builds if getattr(torch.version, one.torch_build, None) is not None), None)


def connect_torch() -> bool:
    """Read torch tensors through torch's C functions (about 12 ns each); False: through DLPack (about 75 ns).

    The place of the tensor inside its Python object is found by comparison with a handle that torch gives out.
    Nothing happens where torch is not loaded, ``SILO_TORCH_SHIM`` is 0, or this torch has another layout.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not settings().torch_shim:
        return False
    import logging  # noqa: PLC0415  # torch has imported them
    from pathlib import Path  # noqa: PLC0415

    log = logging.getLogger("silo")
    aoti: Any = getattr(getattr(torch, "_C", None), "_aoti", None)
    if aoti is None or not hasattr(aoti, "unsafe_alloc_void_ptr_from_tensor"):
        return False
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    tensor = torch.empty(1)
    handle = aoti.unsafe_alloc_void_ptr_from_tensor(tensor)
    try:
        build = _build_of(torch)
        name = "cuda" if build is None else build.torch_build
        rocm = name != "cuda"
        offset = native.torch_open(str(library), tensor, handle, rocm, (torch.Tensor, torch.nn.Parameter))
    finally:
        aoti.alloc_tensor_by_stealing_from_void_ptr(handle)  # gives the handle back
    if offset:
        native.torch_probe(probes(torch))
        if not _refuse_other_values(torch):
            log.debug("torch %s: a kernel reads the memory of negated views as it is", torch.__version__)
    if offset and torch.cuda.is_available():
        gpu_library = Path(torch.__file__).parent / "lib" / f"libtorch_{name}.so"
        if not native.torch_open_stream(str(gpu_library)):
            log.debug("torch %s: its current stream is asked through DLPack", torch.__version__)
    if not offset:
        log.debug("torch %s: tensors are read through DLPack, for its C functions do not fit", torch.__version__)
    return offset != 0


def probes(torch: Any) -> tuple[object, ...]:  # noqa: ANN401  # the module
    """Tensors that differ in dtype, device, rank, extents and strides: where those lie is found by comparing them."""
    names = ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool", "float16", "bfloat16")
    here = [torch.empty(2, dtype=getattr(torch, name)) for name in names]
    meta = [torch.empty(3, 5, dtype=getattr(torch, name), device="meta") for name in names[:4]]
    shaped = [torch.empty(tuple(range(2, 2 + rank))).permute(tuple(reversed(range(rank)))) for rank in range(7)]
    return (*here, *meta, *shaped)


def _refuse_other_values(torch: Any) -> bool:  # noqa: ANN401  # the module
    """Refuse tensors whose memory holds other values than the tensor (``z.conj().imag``), if this can be found out."""
    native_torch: Any = torch._C  # noqa: SLF001  # what a view does to values is nowhere else
    try:
        keys = native_torch._dispatch_keys  # noqa: SLF001
        plain = torch.empty(2)
        complex_ = torch.empty(2, dtype=torch.complex64)
        tensors = [plain, torch._neg_view(plain), complex_, complex_.conj(), *probes(torch)]  # noqa: SLF001
        words = [keys(one).raw_repr() for one in tensors]
        other_values = (words[0] ^ words[1]) | (words[2] ^ words[3])
    except (AttributeError, TypeError, RuntimeError):
        return False
    if other_values.bit_count() != 2:
        return False
    return bool(native.torch_probe_keys(tuple(zip(tensors, words, strict=True)), other_values))


def disconnect_torch() -> None:
    """Read torch tensors through DLPack from now on."""
    native.torch_close()


native.set_type_hook(notice)
