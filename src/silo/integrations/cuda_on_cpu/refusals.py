"""Parts of CUDA that the CPU cannot replace: each raises an error with its name and the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from silo.errors import DeviceError
from silo.integrations.cuda_on_cpu.placement import named_as, put
from silo.integrations.torch.import_hook import watch_extensions

__all__ = ["connect", "refuse_what_needs_cuda"]

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
    """A class that raises when it is called; it can be named, subclassed and compared."""

    reason = ""

    def __call__(cls, *_args: Any, **_kwargs: Any) -> NoReturn:  # noqa: ANN401
        raise DeviceError(cls.reason)


def _refusing(name: str, reason: str) -> type:
    made = _Refused(name.rpartition(".")[2], (), {"__module__": name.rpartition(".")[0]})
    made.reason = _reason(name, reason)
    return made


def refuse_what_needs_cuda(torch: Any) -> None:  # noqa: ANN401
    """Replace parts of torch that need a GPU by errors with a name and a reason; torch itself would raise or crash."""
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
    """Make ``torch.utils.cpp_extension`` refuse sources in CUDA; extensions in C++ are still built."""

    def of_sources(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(name: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            sources = args[0] if args else kwargs.get("sources", ())
            listed = [sources] if isinstance(sources, str) else list(sources or ())
            in_cuda = function.__name__ == "load" and any(str(one).endswith((".cu", ".cuh")) for one in listed)
            given = kwargs.get("cuda_sources", args[1] if function.__name__ == "load_inline" and args[1:] else None)
            if in_cuda or given or kwargs.get("with_cuda"):
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

    def without_nccl(function: Callable[..., Any], place: int) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            backend = kwargs.get("backend", args[place] if len(args) > place else None)
            if isinstance(backend, str) and "nccl" in backend.lower():
                raise DeviceError(_reason("NCCL", 'it joins GPUs; name the backend "gloo", which joins CPUs'))
            return function(*args, **kwargs)

        return named_as(called, function)

    groups.init_process_group = without_nccl(groups.init_process_group, 0)
    groups.new_group = without_nccl(groups.new_group, 2)
    for name in ("init_process_group", "new_group"):
        setattr(distributed, name, getattr(groups, name))
