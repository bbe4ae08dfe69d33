"""One operator, one dtype: eager torch against what Inductor and Silo make of it, forward and backward."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

# Which element of a result is nobody's business: memory that nobody wrote, and signs of vectors that have either.
UNDEFINED = frozenset(
    {
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    }
)
# Relative and absolute tolerances, as torch's own tests of Inductor have them.
_TOLERANCES = {
    torch.float32: (1e-4, 1e-5),
    torch.bfloat16: (2e-2, 2e-2),
    torch.float16: (4e-3, 4e-3),
    torch.int64: (1e-5, 1e-5),
}
# Results of the wide reference count as many times their eager error.
_SLACK = 3.0


@dataclass(frozen=True)
class Outcome:
    """What came of one operator: ``right``, ``wrong``, ``elsewhere`` (Inductor's C++ backend gives it, too),
    ``refused`` (Inductor's C++ backend compiles it neither), ``failed``, ``eager`` (torch itself fails), ``undefined``.
    """

    operator: str
    dtype: str
    sample: int
    status: str
    kernels: int = 0
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def names_of(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


def table() -> list[Any]:
    """The operators of torch's table, each once, in order of their names."""
    from torch.testing._internal.common_methods_invocations import op_db

    return sorted(op_db, key=names_of)


def compare(info: Any, dtype: torch.dtype, samples: int, *, backward: bool) -> Iterator[Outcome]:
    """The outcomes of the first samples of an operator."""
    name, kind = names_of(info), str(dtype).removeprefix("torch.")
    differentiable = backward and dtype in info.supported_backward_dtypes("cpu") and info.supports_autograd
    torch.manual_seed(0)
    try:
        given = list(itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=differentiable), samples))
    except Exception as error:  # noqa: BLE001  # whatever torch's own table does
        yield Outcome(name, kind, 0, "eager", detail=_told(error))
        return
    for number, sample in enumerate(given):
        yield _one(info, name, kind, number, sample, differentiable=differentiable)


def _one(info: Any, name: str, kind: str, number: int, sample: Any, *, differentiable: bool) -> Outcome:
    if info.name in UNDEFINED:
        return Outcome(name, kind, number, "undefined")
    call, tensors = _function_of(info, sample)
    try:
        expected = _results(call, tensors, differentiable=differentiable)
        again = _results(call, tensors, differentiable=differentiable)
    except Exception as error:  # noqa: BLE001  # as above
        return Outcome(name, kind, number, "eager", detail=_told(error))
    if _difference(expected, again) is not None:
        return Outcome(name, kind, number, "undefined", detail="eager torch gives another result each time")
    with counted() as count:
        try:
            made = _results(_compiled(call, "triton"), tensors, differentiable=differentiable)
        except Exception as error:  # noqa: BLE001  # as above
            made, failure = None, _told(error)
    if made is not None:
        difference = _difference(expected, made)
        if difference is None:
            return Outcome(name, kind, number, "right", count())
        if _is_near(call, tensors, expected, made, differentiable=differentiable):
            return Outcome(name, kind, number, "right", count(), f"as near to a wide reference as eager: {difference}")
    try:
        other = _results(_compiled(call, "cpp"), tensors, differentiable=differentiable)
    except Exception as error:  # noqa: BLE001  # as above
        return Outcome(name, kind, number, "refused" if made is None else "wrong", count(), _told(error))
    if made is None:
        return Outcome(name, kind, number, "failed", count(), failure)
    if _difference(other, made) is None:
        return Outcome(name, kind, number, "elsewhere", count(), difference)
    return Outcome(name, kind, number, "wrong", count(), difference)


class counted:  # noqa: N801  # a context
    """Counts the launches of generated kernels for the CPU; called, it gives the number."""

    def __enter__(self) -> Callable[[], int]:
        from torch._inductor.runtime import triton_heuristics

        self._kind: Any = triton_heuristics.CachingAutotuner
        self._plain: Any = self._kind.run
        self._count = 0

        def run(kernel: Any, *arguments: Any, **options: Any) -> Any:
            self._count += 1
            return self._plain(kernel, *arguments, **options)

        self._kind.run = run
        return lambda: self._count

    def __exit__(self, *_: object) -> None:
        self._kind.run = self._plain


def _compiled(call: Callable[..., Any], backend: str) -> Callable[..., Any]:
    torch._dynamo.reset()
    options = {"cpu_backend": backend, "fallback_random": True, "compile_threads": 1}
    return torch.compile(call, options=options)


def _function_of(info: Any, sample: Any) -> tuple[Callable[..., Any], list[Any]]:
    """A function of the tensors of a sample alone, which gives a list of tensors."""
    leaves, shape = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: Any) -> list[Any]:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(filled, shape)
        return [one for one in pytree.tree_leaves(info(first, *args, **kwargs)) if isinstance(one, torch.Tensor)]

    return call, [leaves[place] for place in places]


def _results(call: Callable[..., Any], tensors: Sequence[Any], *, differentiable: bool) -> list[Any]:
    torch.manual_seed(1)
    given = [_copy(one) for one in tensors]
    made = call(*given)
    found = [one.detach() for one in made]
    if differentiable:
        roots = [one for one in made if one.requires_grad and one.numel()]
        leaves = [one for one in given if one.requires_grad]
        if roots and leaves:
            torch.manual_seed(2)
            seeds = [torch.randn_like(one) for one in roots]
            grads = torch.autograd.grad(roots, leaves, seeds, allow_unused=True)
            found += [torch.zeros(()) if one is None else one.detach() for one in grads]
    return found


def _copy(tensor: Any) -> Any:
    """A copy with the same strides, so that an operator in place leaves the sample alone."""
    made = tensor.detach().clone(memory_format=torch.preserve_format)
    return made.requires_grad_(tensor.requires_grad)


def _difference(expected: Sequence[Any], made: Sequence[Any]) -> str | None:
    if len(expected) != len(made):
        return f"{len(made)} results, and {len(expected)} were expected"
    for place, (left, right) in enumerate(zip(expected, made, strict=True)):
        rtol, atol = _TOLERANCES.get(left.dtype, (1e-5, 1e-8))
        try:
            torch.testing.assert_close(right, left, rtol=rtol, atol=atol, equal_nan=True)
        except (AssertionError, RuntimeError, NotImplementedError) as error:
            return f"result {place}: " + " ".join(str(error).split())[:240]
    return None


def _is_near(
    call: Callable[..., Any],
    tensors: Sequence[Any],
    expected: Sequence[Any],
    made: Sequence[Any],
    *,
    differentiable: bool,
) -> bool:
    """Whether results are about as near to those in fp64 as eager torch's: sums may be rounded in any order."""
    if len(expected) != len(made) or not any(one.dtype.is_floating_point for one in tensors):
        return False
    wide = [
        one.detach().double().requires_grad_(one.requires_grad) if one.dtype.is_floating_point else one
        for one in tensors
    ]
    try:
        exact = _results(call, wide, differentiable=differentiable)
    except Exception:  # noqa: BLE001  # no such operator in fp64
        return False
    if len(exact) != len(expected):
        return False
    for true, eager, ours in zip(exact, expected, made, strict=True):
        if _difference([eager], [ours]) is None:
            continue
        if not (eager.dtype.is_floating_point and eager.shape == ours.shape == true.shape):
            return False
        if not torch.equal(eager.isfinite(), ours.isfinite()):
            return False
        finite = eager.isfinite() & true.isfinite()
        error, own = ((one.double() - true.double())[finite].abs().max().item() for one in (eager, ours))
        if math.isnan(own) or own > _SLACK * error:
            return False
    return True


def _widened(tensor: Any) -> Any:
    if not tensor.dtype.is_floating_point:
        return tensor
    return tensor.detach().double().requires_grad_(tensor.requires_grad)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: " + " ".join(str(error).split())[:300]
