"""Calls whose arrays have no memory, such as fake or wrapped tensors of torch.

A tracer, a function that another module registers, can serve some of these calls. For the others, this module explains
the error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["explain_wrapped", "serve_traced", "set_tracer"]

_OPERATOR = "make it an operator (silo.torch_op, or torch.library.custom_op)"
_VMAP = (
    "it stands for one example of a batch inside torch.vmap and has no memory of its own: pass the whole batch to the "
    f"kernel outside of vmap, or {_OPERATOR}"
)
_GRADIENTS = (
    "it tracks gradients inside torch.func (grad, vjp, jvp) and has no memory of its own: wrap the kernel in a "
    "torch.autograd.Function with setup_context, whose forward gets the tensor itself, or make it an operator with a "
    "gradient (silo.torch_op with out= and backward=)"
)
_FAKE = (
    "it is a fake tensor, which has a shape and no memory, as torch.compile and torch.export trace with: call the "
    f"kernel outside of the trace, or {_OPERATOR}"
)
_FUNCTIONAL = (
    "it is a functional tensor, as torch.func.functionalize and torch.compile trace with: call the kernel outside of "
    f"the trace, or {_OPERATOR}; torch._from_functional_tensor(t) gives the tensor inside"
)
_TRANSFORMED = (
    "it stands for another tensor inside a transform of torch.func and has no memory of its own: call the kernel "
    "outside of it"
)
_META = "it is a meta tensor, which has a shape and no memory: make it on a device"
_QUANTIZED = "it is a quantized tensor: pass t.int_repr(), its integers, with scale and zero point as arguments"
_UNSTRIDED = (
    "it is not laid out by strides (sparse, or of a library): pass its parts (t.values(), t.indices()), or t.to_dense()"
)
_WRAPPER = "it is of a class that wraps other tensors and has no memory of its own: pass the tensors inside"
_NEGATED = (
    "it is a view whose memory holds its values with the other sign (the imaginary part of a conjugate): pass "
    "t.resolve_neg(), and where the kernel writes to it copy the result back; an operator (silo.torch_op) does so by "
    "itself"
)
_CONJUGATED = "it is a conjugated view, whose memory holds other values: pass t.resolve_conj()"
_FREED = "its memory was freed (untyped_storage().resize_(0)): fill it again first"


def explain_wrapped(value: object) -> str:
    """Returns the end of an error message for a torch tensor without readable memory: its kind, and the remedy.

    Returns "" for other objects.

    The native module calls this if it could not read an argument.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return ""
    tensor: Any = value
    for is_such, description in _KINDS:
        try:
            is_wrapped = is_such(torch, tensor)
        except Exception:  # noqa: BLE001, S112  # private functions of torch, which versions lack; the next one is asked
            continue
        if is_wrapped:
            return description
    return ""


def _type_named(*names: str) -> Callable[[Any, Any], bool]:
    return lambda _torch, tensor: any(kind.__name__ in names for kind in type(tensor).__mro__)


def _wraps_others(torch: Any, tensor: Any) -> bool:  # noqa: ANN401
    kind: Any = tensor.__class__
    dispatch = getattr(kind, "__torch_dispatch__", None)
    return kind is not torch.Tensor and dispatch is not getattr(torch.Tensor, "__torch_dispatch__", None)


# The first match counts, so the outermost wrapper of a tensor comes first.
_KINDS: tuple[tuple[Callable[[Any, Any], bool], str], ...] = (
    (lambda torch, tensor: torch._C._functorch.is_batchedtensor(tensor), _VMAP),  # noqa: SLF001
    (lambda torch, tensor: torch._C._functorch.is_gradtrackingtensor(tensor), _GRADIENTS),  # noqa: SLF001
    (_type_named("FakeTensor"), _FAKE),
    (_type_named("FunctionalTensor"), _FUNCTIONAL),
    (lambda torch, tensor: torch._is_functional_tensor(tensor), _FUNCTIONAL),  # noqa: SLF001
    (lambda torch, tensor: torch._C._functorch.is_functionaltensor(tensor), _FUNCTIONAL),  # noqa: SLF001
    (lambda torch, tensor: torch._C._functorch.is_functorch_wrapped_tensor(tensor), _TRANSFORMED),  # noqa: SLF001
    (lambda _torch, tensor: tensor.is_meta, _META),
    (lambda _torch, tensor: tensor.is_quantized, _QUANTIZED),
    (lambda torch, tensor: tensor.layout is not torch.strided, _UNSTRIDED),
    (lambda _torch, tensor: tensor.is_neg(), _NEGATED),
    (lambda _torch, tensor: tensor.is_conj(), _CONJUGATED),
    (_wraps_others, _WRAPPER),
    (lambda _torch, tensor: tensor.untyped_storage().nbytes() == 0 and tensor.numel() > 0, _FREED),
)


# A function that is called with the kernel, its positional arguments, its options, and the grid or None. It returns
# whether it served the call.
Tracer = Callable[[Any, tuple[object, ...], dict[str, object], object], bool]

_tracers: list[Tracer] = []


def set_tracer(tracer: Tracer) -> None:
    """Registers ``tracer``, in place of an earlier one.

    It is called for each call with an unreadable argument, before the error is raised.
    """
    _tracers[:] = [tracer]


def serve_traced(kernel: Any, arguments: tuple[object, ...], options: dict[str, object], grid: object) -> bool:  # noqa: ANN401
    """Returns whether the registered tracer served the call. Errors of the tracer propagate."""
    return any(tracer(kernel, arguments, options, grid) for tracer in _tracers)
