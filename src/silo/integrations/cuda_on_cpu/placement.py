"""Tracks the memory that a tensor counts as being in, and replaces or refuses torch's functions that take a device.

All tensors are in the CPU's memory. A mark on a tensor's storage is the place that the program requested: host memory,
pinned host memory, or the device. So ``x.to("cuda")`` returns ``x`` itself if ``x`` is on the device, and a copy if it
is on the host, as with a GPU: a program that changes either in place gets the results that a GPU would give. Results of
most operations are unmarked and count as being on the device; arithmetic and conversions of host tensors stay on the
host.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import import_module
from types import BuiltinMethodType, FunctionType
from typing import Any, Final, NoReturn, cast

from silo.errors import DeviceError
from silo.integrations.torch.import_hook import watch_extensions

__all__ = [
    "DEVICE",
    "HOST",
    "PINNED",
    "Placement",
    "connect",
    "index_of",
    "named_as",
    "names_cuda",
    "put",
    "refuse_what_needs_cuda",
]

# ---- Replacing functions of torch ----


def put(owners: tuple[Any, ...], name: str, function: Callable[..., Any]) -> None:
    """Makes ``function`` the member ``name`` of every owner, as a separate function object in each.

    ``torch.compile`` has rules for torch's functions by name, and finds the name of a function by its identity. If one
    object had two names with different rules, ``torch.compile`` would raise an error.
    """
    for owner in owners:
        original = getattr(owner, name, None)
        replacement: Any = function
        if isinstance(function, FunctionType):
            replacement = FunctionType(
                function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
            )
            replacement.__kwdefaults__ = function.__kwdefaults__
        elif isinstance(function, BuiltinMethodType):
            replacement = _calling(function)
        if original is not None and isinstance(replacement, FunctionType):
            named_as(replacement, original)
        setattr(owner, name, replacement)


def _calling(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(*args, **kwargs)  # noqa: PLW0108  # a new object


def named_as(function: Any, original: Any) -> Any:  # noqa: ANN401
    """Gives ``function`` the name, module and docstring of ``original``, which tracers print; returns ``function``."""
    function.__name__ = getattr(original, "__name__", function.__name__)
    function.__qualname__ = getattr(original, "__qualname__", function.__name__)
    function.__doc__ = getattr(original, "__doc__", None)
    function.__module__ = getattr(original, "__module__", None) or "torch"
    return function


# ---- The memory that a tensor counts as being in, and torch's functions that take a device ----


HOST: Final = "host"
PINNED: Final = "pinned"
DEVICE: Final = "device"

_MARK = "_silo_place"
_Function = Callable[..., Any]

# Functions with a `device` keyword that are missing from torch's list of functions that use the default device.
_LIKE = ("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like")
_OF_DATA = ("tensor", "as_tensor", "asarray")
_NEW = ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty_strided")
_OF_HOST = ("from_numpy", "frombuffer")
# Methods with which programs most often prepare arrays on the host. If all of their tensors are marked as being on the
# host, their result is marked so too.
_KEEPING = (
    *("clone", "contiguous", "float", "half", "bfloat16", "double", "int", "long", "bool"),
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__neg__"),
)


def names_cuda(device: Any) -> bool:  # noqa: ANN401  # text, torch.device, index, None
    """Returns whether a device argument (text, ``torch.device``, an index, None) names the CUDA device.

    Raises:
        RuntimeError: the argument names a CUDA device other than the first; torch raises the same for a missing GPU.
    """
    if device is None or isinstance(device, bool):
        return False
    if isinstance(device, int):
        index_of(device)
        return True
    if isinstance(device, str):
        kind, _, index = device.partition(":")
        if kind != "cuda":
            return False
        if index.isdigit():
            index_of(int(index))
        return True
    if getattr(device, "type", None) != "cuda":
        return False
    index_of(device.index)
    return True


def index_of(device: Any) -> int:  # noqa: ANN401
    """Returns 0, the index of the only device, for a device argument of ``torch.cuda``.

    The CPU is accepted too, because ``x.device`` is ``cpu`` here.

    Raises:
        RuntimeError: the argument names another index.
        ValueError: the argument names a device other than CUDA.
    """
    if isinstance(device, str):
        kind, _, number = device.partition(":")
        index = int(number) if number.isdigit() else None
    elif device is None or isinstance(device, int):
        kind, index = "cuda", device
    else:
        kind, index = device.type, device.index
    if kind not in ("cuda", "cpu"):
        raise ValueError(f"Expected a cuda device, but got: {device}")
    if kind == "cuda" and index is not None and index > 0:
        raise RuntimeError(
            f"CUDA error: invalid device ordinal: cuda:{index} (silo exec --on cpu stands in for one device, cuda:0)"
        )
    return 0


class Placement:
    """Replaces torch's functions and methods that take a device, in this process.

    Args:
        torch: the module, after its import is complete.
    """

    def __init__(self, torch: Any) -> None:  # noqa: ANN401
        self._torch = torch
        self._cpu = torch.device("cpu")
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._to: _Function = torch.Tensor.to
        self._type: _Function = torch.Tensor.type
        self._move_storage: _Function = torch.storage._StorageBase.to  # noqa: SLF001
        self._empty: _Function = torch.empty
        self._empty_strided: _Function = torch.empty_strided

    def place_of(self, tensor: Any) -> str | None:  # noqa: ANN401
        """Returns the mark of a tensor's storage, or None for a storage without a mark.

        An unmarked result of an operation counts as on the device.
        """
        try:
            return getattr(tensor.untyped_storage(), _MARK, None)
        except (NotImplementedError, RuntimeError):  # a sparse tensor, or a subclass without memory of its own
            return None

    def mark(self, tensor: Any, device: str, *, again: bool = True) -> Any:  # noqa: ANN401
        """Marks a tensor's storage and returns the tensor. With ``again=False``, an existing mark stays."""
        if type(tensor) in self._plain and (again or self.place_of(tensor) is None):
            try:
                setattr(tensor.untyped_storage(), _MARK, device)
            except (NotImplementedError, RuntimeError):
                return tensor
        return tensor

    def is_on_host(self, tensor: Any) -> bool:  # noqa: ANN401
        """Returns whether a tensor is marked as being in host memory."""
        return self.place_of(tensor) in (HOST, PINNED)

    def kernels(self) -> dict[str, _Function]:
        """Returns the kernels to register for torch's CUDA key, by operator.

        They return CPU tensors marked as on the device.
        """
        torch = self._torch

        # The parameters have the names that they have in the operators' schemas, because torch passes some by name.
        def empty(
            size: Sequence[int],
            dtype: Any = None,  # noqa: ANN401
            layout: Any = None,  # noqa: ANN401, ARG001
            device: Any = None,  # noqa: ANN401, ARG001
            pin_memory: Any = None,  # noqa: ANN401, ARG001
            memory_format: Any = None,  # noqa: ANN401
        ) -> Any:  # noqa: ANN401
            form = memory_format or torch.contiguous_format
            return self.mark(self._empty(size, dtype=dtype, device="cpu", memory_format=form), DEVICE)

        def empty_strided(
            size: Sequence[int],
            stride: Sequence[int],
            dtype: Any = None,  # noqa: ANN401
            layout: Any = None,  # noqa: ANN401, ARG001
            device: Any = None,  # noqa: ANN401, ARG001
            pin_memory: Any = None,  # noqa: ANN401, ARG001
        ) -> Any:  # noqa: ANN401
            return self.mark(self._empty_strided(size, stride, dtype=dtype, device="cpu"), DEVICE)

        def indices(make: _Function) -> _Function:
            def made(
                row: int,
                col: int,
                offset: int = 0,
                dtype: Any = None,  # noqa: ANN401
                layout: Any = None,  # noqa: ANN401, ARG001
                device: Any = None,  # noqa: ANN401, ARG001
                pin_memory: Any = None,  # noqa: ANN401, ARG001
            ) -> Any:  # noqa: ANN401
                return self.mark(make(row, col, offset, dtype=dtype or torch.int64, device="cpu"), DEVICE)

            return made

        return {
            "empty.memory_format": empty,
            "empty_strided": empty_strided,
            "tril_indices": indices(torch.tril_indices),
            "triu_indices": indices(torch.triu_indices),
        }

    def replace(self) -> None:
        """Replaces torch's factory functions, and the methods of tensors and storages that move data."""
        torch, tensor = self._torch, self._torch.Tensor
        # The set of constructors is listed before any of them is replaced: torch caches this set, and
        # ``torch.set_default_device`` compares the identity of each called function with the set.
        constructors: Any = import_module("torch.utils._device")
        listed = {id(function) for function in constructors._device_constructors()}  # noqa: SLF001
        members = cast("dict[str, Any]", vars(torch))
        names = [name for name, value in members.items() if id(value) in listed and name not in _OF_DATA]
        for name in (*names, *_OF_HOST):
            self._replace_factory(name, self._factory(getattr(torch, name), HOST))
        for name in _LIKE:
            self._replace_factory(name, self._factory(getattr(torch, name), None))
        for name in _OF_DATA:
            self._replace_factory(name, self._of_data(getattr(torch, name)))
        for name in _NEW:
            setattr(tensor, name, self._factory(getattr(tensor, name), None))
        for name in _KEEPING:
            setattr(tensor, name, self._keeping(getattr(tensor, name)))
        tensor.type = self._method(tensor.type, self._typed)
        tensor.to = self._method(tensor.to, self._moved)
        tensor.cuda = self._method(tensor.cuda, self._to_cuda)
        tensor.cpu = self._method(tensor.cpu, self._to_cpu)
        tensor.pin_memory = self._method(tensor.pin_memory, self._pinned)
        tensor.is_pinned = self._method(tensor.is_pinned, self._is_pinned)
        tensor.get_device = self._method(tensor.get_device, self._index)
        tensor.record_stream = self._method(tensor.record_stream, _nothing)
        tensor.is_cuda = property(functools.partial(_is_cuda, self))
        parse = torch._C._nn._parse_to  # noqa: SLF001

        def parsed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # of Module.to; an index needs a GPU there
            if args and isinstance(args[0], int) and names_cuda(args[0]):
                args = (self._cuda(), *args[1:])
            return parse(*args, **kwargs)

        put((torch._C._nn,), "_parse_to", parsed)  # noqa: SLF001
        storage = torch.storage._StorageBase  # noqa: SLF001
        storage.cuda = self._method(storage.cuda, _itself)
        storage.to = self._method(storage.to, self._storage_moved)
        storage.pin_memory = self._method(storage.pin_memory, _itself)
        storage.is_pinned = self._method(storage.is_pinned, _nothing_pinned)

    def _keeping(self, method: _Function) -> _Function:
        def called(tensor: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            return self._marked_if_host(method(tensor, *args, **kwargs), tensor, *args)

        return named_as(called, method)

    def _marked_if_host(self, result: Any, *operands: Any) -> Any:  # noqa: ANN401
        """Returns ``result``, marked as being on the host if all tensors among ``operands`` are."""
        for operand in operands:
            if isinstance(operand, self._torch.Tensor) and not self.is_on_host(operand):
                return result
        return self.mark(result, HOST, again=False)

    def _replace_factory(self, name: str, function: _Function) -> None:
        # torch.jit finds a function's operator by the function's identity, so the replacement is registered for the
        # same operator
        scripts: Any = import_module("torch.jit._builtins")
        operator = scripts._find_builtin(getattr(self._torch, name))  # noqa: SLF001
        if operator is not None:
            scripts._register_builtin(function, operator)  # noqa: SLF001
        setattr(self._torch, name, function)

    def _factory(self, function: _Function, default: str | None) -> _Function:
        """Wraps a factory function so that its ``device`` may be ``cuda``.

        ``default`` is the mark of tensors made without a device; None: the mark of the first argument.
        """

        def made(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            pinned = kwargs.pop("pin_memory", None)
            device = kwargs.get("device")
            if names_cuda(device):
                kwargs["device"] = self._cpu
                return self._marked(function(*args, **kwargs), DEVICE, kwargs)
            result = function(*args, **kwargs)
            if pinned:
                return self._marked(result, PINNED, kwargs)
            if device is None and default is None:
                location = self.place_of(args[0]) if args else None
                return (
                    result
                    if location is None
                    else self._marked(result, HOST if location == PINNED else location, kwargs)
                )
            return self._marked(result, HOST, kwargs, again=False)

        return named_as(made, function)

    def _marked(self, result: Any, device: str, kwargs: dict[str, Any], *, again: bool = True) -> Any:  # noqa: ANN401
        return result if kwargs.get("out") is not None else self.mark(result, device, again=again)

    def _of_data(self, function: _Function) -> _Function:
        """Wraps ``torch.tensor`` or a similar function.

        A tensor that is passed as data is moved as by :meth:`Tensor.to`.
        """
        made_anew = self._factory(function, HOST)
        like = self._factory(function, None)
        copies = function is self._torch.tensor

        def made(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            data: Any = args[0] if args else kwargs.get("data", kwargs.get("obj"))
            if not isinstance(data, self._torch.Tensor):
                return made_anew(*args, **kwargs)
            device = kwargs.get("device")
            if device is None or copies:
                return like(*args, **kwargs) if device is None else made_anew(*args, **kwargs)
            copied = bool(kwargs.get("copy"))
            dtype = kwargs.get("dtype")
            moved = data.to(device=device, copy=copied) if dtype is None else data.to(device, dtype, copy=copied)
            return moved if kwargs.get("requires_grad") is None else moved.requires_grad_(kwargs["requires_grad"])

        return named_as(made, function)

    def _moved(self, tensor: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        target = self._target(args[0] if args else kwargs.get("device", kwargs.get("other")))
        if target is None:
            return self._marked_if_host(self._to(tensor, *args, **kwargs), tensor)
        if target == DEVICE and (kwargs.get("device") is not None):
            kwargs["device"] = self._cpu
        elif target == DEVICE and args and not isinstance(args[0], self._torch.Tensor):
            args = (self._cpu, *args[1:])
        result = self._to(tensor, *args, **kwargs)
        if result is tensor:
            if self.is_on_host(tensor) == (target == HOST):
                return tensor
            result = tensor.clone()
        return self.mark(result, target)

    def _target(self, requested: Any) -> str | None:  # noqa: ANN401
        """Returns the place that the first argument of ``Tensor.to`` names; None for a dtype or a different device."""
        if isinstance(requested, self._torch.Tensor):
            return HOST if self.is_on_host(requested) else DEVICE if requested.device.type == "cpu" else None
        if names_cuda(requested):
            return DEVICE
        is_cpu = requested in ("cpu", self._cpu) or (isinstance(requested, str) and requested.startswith("cpu:"))
        return HOST if is_cpu else None

    def _to_cuda(
        self,
        tensor: Any,  # noqa: ANN401
        device: Any = None,  # noqa: ANN401
        non_blocking: Any = False,  # noqa: ANN401, FBT002, ARG002
        memory_format: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        index_of(device)
        return self._moved(tensor, self._cuda(), **_form(memory_format))

    def _to_cpu(self, tensor: Any, memory_format: Any = None) -> Any:  # noqa: ANN401
        return self._moved(tensor, self._cpu, **_form(memory_format))

    def _cuda(self) -> Any:  # noqa: ANN401
        return self._torch.device("cuda", 0)

    def _typed(self, tensor: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Implements ``Tensor.type``: a CUDA tensor type, by name or class, moves the tensor and converts its dtype."""
        name = (
            dtype if isinstance(dtype, str) else f"{getattr(dtype, '__module__', '')}.{getattr(dtype, '__name__', '')}"
        )
        if not name.startswith("torch.cuda."):
            return self._type(tensor, *(() if dtype is None else (dtype,)), *args, **kwargs)
        return self._moved(tensor, self._cuda(), getattr(self._torch, name.rpartition(".")[2]).dtype)

    def _storage_moved(self, storage: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        requested = args[0] if args else kwargs.get("device")
        return storage if names_cuda(requested) else self._move_storage(storage, *args, **kwargs)

    def _pinned(self, tensor: Any, device: Any = None) -> Any:  # noqa: ANN401, ARG002
        return tensor if self.place_of(tensor) == PINNED else self.mark(tensor.detach().clone(), PINNED)

    def _is_pinned(self, tensor: Any, device: Any = None) -> bool:  # noqa: ANN401, ARG002
        return self.place_of(tensor) == PINNED

    def _index(self, tensor: Any) -> int:  # noqa: ANN401
        return -1 if tensor.device.type != "cpu" or self.is_on_host(tensor) else 0

    def _method(self, method: _Function, replacing: Callable[..., Any]) -> _Function:
        def called(tensor: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            return replacing(tensor, *args, **kwargs)

        return named_as(called, method)


def _is_cuda(placement: Placement, tensor: Any) -> bool:  # noqa: ANN401
    return tensor.device.type == "cpu" and not placement.is_on_host(tensor)


def _form(memory_format: Any) -> dict[str, Any]:  # noqa: ANN401
    return {} if memory_format is None else {"memory_format": memory_format}


def _nothing(*_args: Any, **_kwargs: Any) -> None:  # noqa: ANN401
    return None


def _nothing_pinned(*_args: Any, **_kwargs: Any) -> bool:  # noqa: ANN401
    return False


def _itself(storage: Any, *_args: Any, **_kwargs: Any) -> Any:  # noqa: ANN401
    return storage


_GRAPHS: Final = "a graph replays launches of the driver, and there is no driver: run the program without graphs"
_POOLS: Final = "memory is allocated by torch's allocator for the CPU, which has no pools"
_TYPES: Final = (
    "tensors of that type have a CUDA key, and tensors here are the CPU's: use torch.tensor(..., device='cuda')"
)
_EXTENSIONS: Final = "code in CUDA runs on a GPU alone"
_REFUSED: Final = {
    "CUDAGraph": _GRAPHS,
    "graph": _GRAPHS,
    "make_graphed_callables": _GRAPHS,
    "graph_pool_handle": _GRAPHS,
    "GreenContext": "a green context is a share of a GPU's processors",
    "MemPool": _POOLS,
    "use_mem_pool": _POOLS,
    "CUDAPluggableAllocator": _POOLS,
    "change_current_allocator": _POOLS,
    "caching_allocator_alloc": _POOLS,
    "current_blas_handle": "there is no cuBLAS",
    "current_solver_handle": "there is no cuSOLVER",
}
_TYPE_NAMES: Final = ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")


def _reason(name: str, reason: str) -> str:
    return f"{name} cannot be had where cuda is the CPU (silo exec --on cpu): {reason}"


class _Refused(type):
    """The metaclass of placeholder classes that raise when called, but can be named, subclassed and compared."""

    reason = ""

    def __call__(cls, *_args: Any, **_kwargs: Any) -> NoReturn:  # noqa: ANN401
        raise DeviceError(cls.reason)


def _refusing(name: str, reason: str) -> type:
    refused_class = _Refused(name.rpartition(".")[2], (), {"__module__": name.rpartition(".")[0]})
    refused_class.reason = _reason(name, reason)
    return refused_class


def refuse_what_needs_cuda(torch: Any) -> None:  # noqa: ANN401
    """Replaces each part of torch that needs a GPU by one that raises an error, which names the part and the reason.

    Without the replacement, torch would crash or raise unclear errors.
    """
    cuda = torch.cuda
    for name, reason in _REFUSED.items():
        setattr(cuda, name, _refusing(f"torch.cuda.{name}", reason))
    cuda.graphs.CUDAGraph, cuda.graphs.graph = cuda.CUDAGraph, cuda.graph
    cuda.graphs.make_graphed_callables = cuda.make_graphed_callables
    for name in _TYPE_NAMES:
        setattr(cuda, f"{name}Tensor", _refusing(f"torch.cuda.{name}Tensor", _TYPES))
    cuda.jiterator = _refusing("torch.cuda.jiterator", "it compiles CUDA C++")
    set_type = torch.set_default_tensor_type

    def default_type(t: Any) -> None:  # noqa: ANN401
        name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
        if name.startswith("torch.cuda."):
            raise DeviceError(_reason(f"set_default_tensor_type({name})", "use torch.set_default_device('cuda')"))
        set_type(t)

    torch.set_default_tensor_type = default_type
    if torch.distributed.is_available():
        _refuse_nccl(torch.distributed)
    watch_extensions()


def connect(module: Any) -> None:  # noqa: ANN401
    """Makes ``torch.utils.cpp_extension`` refuse CUDA sources. Extensions in C++ are still built."""

    def of_sources(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(name: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            sources = args[0] if args else kwargs.get("sources", ())
            listed = [sources] if isinstance(sources, str) else list(sources or ())
            in_cuda = function.__name__ == "load" and any(str(source).endswith((".cu", ".cuh")) for source in listed)
            cuda_sources = kwargs.get(
                "cuda_sources", args[1] if function.__name__ == "load_inline" and args[1:] else None
            )
            if in_cuda or cuda_sources or kwargs.get("with_cuda"):
                raise DeviceError(_reason(f"the CUDA extension {name!r}", _EXTENSIONS))
            return function(name, *args, **kwargs)

        return called

    def refused(name: str, *_args: Any, **_kwargs: Any) -> NoReturn:  # noqa: ANN401
        raise DeviceError(_reason(f"the CUDA extension {name!r}", _EXTENSIONS))

    put((module,), "load", of_sources(module.load))
    put((module,), "load_inline", of_sources(module.load_inline))
    put((module,), "CUDAExtension", refused)


def _refuse_nccl(distributed: Any) -> None:  # noqa: ANN401
    groups = distributed.distributed_c10d

    def without_nccl(function: Callable[..., Any], index: int) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            backend = kwargs.get("backend", args[index] if len(args) > index else None)
            if isinstance(backend, str) and "nccl" in backend.lower():
                raise DeviceError(_reason("NCCL", 'it joins GPUs; name the backend "gloo", which joins CPUs'))
            return function(*args, **kwargs)

        return named_as(called, function)

    groups.init_process_group = without_nccl(groups.init_process_group, 0)
    groups.new_group = without_nccl(groups.new_group, 2)
    for name in ("init_process_group", "new_group"):
        setattr(distributed, name, getattr(groups, name))
