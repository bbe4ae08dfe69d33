"""Imports an engine's modules from a checkout without the engine's C extensions and without the packages they need.

A module of the engine is run if it contains Triton kernels or is listed in :data:`PLAIN`. Every other module of the
engine, and each package of :data:`ABSENT`, is an :class:`AbsentModule`, whose members are :class:`Absent` objects.
Packages are only folders: their ``__init__`` is not run.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import math
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ABSENT = (
    "aiter", "cachetools", "cutlass", "deep_gemm", "flashinfer", "msgspec", "quack", "regex", "sgl_kernel",
    "tilelang", "transformers", "triton_kernels", "tvm_ffi", "zmq", "psutil", "orjson", "cuda",
)  # fmt: skip
PLAIN = (
    "sglang.kernels.ops",
    "vllm.lora.ops.triton_ops",
    "vllm.model_executor.determinism",
    "vllm.model_executor.layers.mamba.ops",
    "vllm.model_executor.layers.quantization.utils",
    "vllm.model_executor.warmup.jit_warmup",
    "vllm.scalar_type",
    "vllm.third_party.flash_linear_attention",
    "vllm.utils.math_utils",
    "vllm.v1.kv_cache_interface",
    "vllm.v1.outputs",
    "vllm.v1.watermarking",
)


class Absent:
    """A stand-in for anything that is not imported: it is false and empty, and as a decorator it changes nothing.

    Its attributes, items and call results are Absent objects again.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        decorated = len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType | type)
        return args[0] if decorated else Absent(f"{self._name}()")

    def __getitem__(self, key: object) -> Any:
        return Absent(f"{self._name}[{key!r}]")

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()

    def __or__(self, other: object) -> Any:
        return Any

    __ror__ = __or__

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __contains__(self, key: object) -> bool:
        return False

    def __ge__(self, other: object) -> bool:
        return False

    __gt__ = __le__ = __lt__ = __ge__

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __repr__(self) -> str:
        return f"<absent {self._name}>"


class Capability(NamedTuple):
    """A compute capability, in the form that vLLM's platforms return."""

    major: int
    minor: int

    def to_int(self) -> int:
        return 10 * self.major + self.minor


class Platform(Absent):
    """The platform that an engine queries: an NVIDIA GPU of compute capability 8.0. Unknown methods return False."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: False

    def is_cuda(self) -> bool:
        return True

    is_cuda_alike = is_cuda

    def fp8_dtype(self) -> Any:
        import torch

        return torch.float8_e4m3fn

    def get_device_capability(self, *_: object) -> Capability:
        return Capability(8, 0)

    def get_device_name(self, *_: object) -> str:
        return "stand-in"

    def num_compute_units(self, *_: object) -> int:
        return 8


class AbsentModule(types.ModuleType):
    """A module that is not run; it has the members that :func:`given_members` returns, and stand-ins for all others."""

    def __getattr__(self, name: str) -> Any:
        given = given_members(self.__name__)
        if name in given:
            return given[name]
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith(("is_", "has_", "use_", "supports_")):
            return lambda *_, **__: False
        if self.__name__.endswith(".envs"):
            return False  # a switch; some switches become constexprs, so they must be real values
        return Absent(f"{self.__name__}.{name}")


def on_device(data: Any, device: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Return host data as a tensor on the device, or copy it into ``out``."""
    import torch

    made = torch.as_tensor(data, dtype=dtype).to(device or "cuda")
    return made if out is None else out.copy_(made)


def register_op(*args: Any, **kwargs: Any) -> Any:
    """Register the Python function itself as ``torch.ops.vllm.NAME``, because the engine also calls it by that name."""
    import torch

    function = kwargs.get("op_func", args[1] if len(args) > 1 else None)
    name = kwargs.get("op_name", args[0] if args else None)
    if isinstance(name, str) and function is not None:
        setattr(torch.ops.vllm, name, function)
    return None


def given_members(name: str) -> dict[str, Any]:
    """Return the members of a module that is not run: objects that decorate kernels or decide between kernels."""
    import torch
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    platform = Platform("platform")
    match name:
        case "vllm.triton_utils":
            return {
                "HAS_TRITON": True, "triton": triton, "tl": tl, "tldevice": libdevice,
                "LOG2E": math.log2(math.e), "LOGE2": math.log(2), "aggregate": tl.core._aggregate,

                "use_tensor_descriptor": lambda *_, **__: False,
            }  # fmt: skip
        case "vllm.platforms":
            return {"current_platform": platform}
        case "vllm.utils.torch_utils":
            return {
                "direct_register_custom_op": register_op,
                "is_torch_equal_or_newer": lambda _: True,
                "async_tensor_h2d": on_device,
            }
        case "vllm.envs":
            return {"VLLM_TUNED_CONFIG_FOLDER": None, "VLLM_BATCH_INVARIANT": False}
        case "vllm.utils.platform_utils":
            return {"num_compute_units": platform.num_compute_units}
        case "sglang.kernels.ops.attention.fla.index":
            from fla.ops.utils import index

            return dict(vars(index))
        case "sglang.kernels.ops.attention.fla.utils":
            return {"autotune_cache_kwargs": {}}
        case "sglang.kernels.ops.attention.score_mod":
            return {"unpack_aux_tensors": lambda *_: (None, 0, 0, 0)}
        case "sglang.kernels.ops.quantization.fp8_utils":
            return {"fp8_dtype_to_triton": {torch.float8_e4m3fn: tl.float8e4nv, torch.float8_e5m2: tl.float8e5}.get}
        case "sglang.kernels.jit.utils":
            return {"get_jit_cuda_arch": platform.get_device_capability}
        case "sglang.srt.utils" | "sglang.srt.utils.common":
            return {
                "is_cuda": lambda: True, "get_device_core_count": lambda *_: 8, "cdiv": lambda a, b: -(-a // b),
                "ceil_div": lambda a, b: -(-a // b), "next_power_of_2": lambda n: 1 << max(n - 1, 0).bit_length(),
                "get_device_capability": lambda *_: (8, 0), "get_device_sm": lambda: 80,
                "direct_register_custom_op": register_op, "is_sm90_supported": lambda *_: False,
            }  # fmt: skip
    return {}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of one engine in a checkout, and replaces those that are not run."""

    def __init__(self, engine: str, root: Path) -> None:
        self.engine = engine
        self.root = root

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        top = name.partition(".")[0]
        if top in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if top != self.engine:
            return None
        place = self.root.joinpath(*name.split("."))
        file = place.with_suffix(".py")
        if file.is_file() and not given_members(name):
            text = file.read_text(encoding="utf-8")
            if "triton.jit" in text or name.startswith(PLAIN):
                return importlib.util.spec_from_file_location(name, file)
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = [str(place)]
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return AbsentModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: a replaced module has no code to run."""


def install(engine: str, checkouts: Path) -> None:
    """From now on, import an engine's modules from ``checkouts/ENGINE/ENGINE``."""
    if not (checkouts / engine / engine).is_dir():
        raise SystemExit(f"{checkouts / engine} is no checkout of {engine}: it has no folder {engine}")
    sys.meta_path.insert(0, Finder(engine, checkouts / engine))
