"""``torch.vmap`` over an operator: the kernel runs once for each example of the batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import zip_longest
from typing import Any, Protocol

from silo.errors import ArgumentError
from silo.integrations.torch.schema import OpArgument, OperatorKind
from silo.kernels.kernel import Kernel

__all__ = ["BatchedOperator", "batch_rule", "strided_names"]


class BatchedOperator(Protocol):
    """What the rule needs of an operator; see :class:`silo.integrations.torch.TorchOp`."""

    name: str
    arguments: tuple[OpArgument, ...]
    outputs: tuple[str, ...]
    strided: frozenset[str]
    overload: Any

    def filled(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values that torch's dispatcher gives, with defaults."""
        ...


def strided_names(
    operator: str, kernel: Kernel, arguments: Sequence[OpArgument], strided: Collection[str] | None
) -> frozenset[str]:
    """The tensors that the kernel reads by strides that calls pass, so that any layout is right for them.

    ``strided`` is what the author declares. With None it is every tensor of a kernel that has a parameter with "stride"
    in its name, and no tensor of any other kernel.

    Raises:
        ArgumentError: ``strided`` names something other than tensors, or a tensor that the kernel declares contiguous.
    """
    tensors = [one.name for one in arguments if one.kind is OperatorKind.TENSOR]
    if strided is None:
        takes_strides = any("stride" in name.lower() for name in kernel.source.signature.names)
        return frozenset(tensors) if takes_strides else frozenset()
    unknown = [name for name in strided if name not in tensors]
    if isinstance(strided, str) or unknown:
        raise ArgumentError(
            f"{operator}: strided= names tensors among the arguments, which are {', '.join(tensors) or 'none'}, and is "
            f"{strided!r}"
        )
    return frozenset(strided)


def batch_rule(torch: Any, operator: BatchedOperator) -> Callable[..., tuple[Any, Any]]:  # noqa: ANN401  # the module
    """The rule for ``torch.library.register_vmap``.

    Each example is a tensor of its own layout, dense rows in order, because a kernel that takes no strides assumes
    them; a view of the batch with another layout is copied, and copied back if the kernel writes to it. Tensors that
    the operator declares strided are passed as views of the batch with the strides that they have there.
    """
    dense = [one.kind is OperatorKind.TENSOR and one.name not in operator.strided for one in operator.arguments]

    def rule(info: Any, given_dims: Sequence[int | None], *given: Any) -> tuple[Any, Any]:  # noqa: ANN401
        args = list(operator.filled(given))
        in_dims = [
            place if one.kind is OperatorKind.TENSOR else None  # of a grid it is a list
            for one, place in zip_longest(operator.arguments, given_dims)
        ]
        for one, place in zip(operator.arguments, in_dims, strict=True):
            if one.writes and place is None:
                raise ArgumentError(
                    f"{operator.name} writes to {one.name}, which is one tensor for the whole batch of torch.vmap, "
                    "so that examples would overwrite each other: make it inside vmap, from something that has the "
                    "batch"
                )
        for index, (value, place) in enumerate(zip(args, in_dims, strict=True)):
            if dense[index] and place is None and value is not None:
                args[index] = value.contiguous()  # copied once, if at all, for the whole batch
        made = [_run_one(operator, dense, args, in_dims, number) for number in range(info.batch_size)]
        if not operator.outputs:
            return None, None
        if len(operator.outputs) == 1:
            return torch.stack(made), 0
        return tuple(torch.stack(column) for column in zip(*made, strict=True)), (0,) * len(operator.outputs)

    return rule


def _run_one(
    operator: BatchedOperator, dense: Sequence[bool], args: Sequence[Any], in_dims: Sequence[int | None], number: int
) -> Any:  # noqa: ANN401  # what the operator returns
    """Run the operator on example ``number`` of the batch."""
    values: list[Any] = []
    copied: list[tuple[Any, Any]] = []
    for one, is_dense, value, place in zip(operator.arguments, dense, args, in_dims, strict=True):
        if place is None:
            values.append(value)
            continue
        view = value.select(place, number)
        example = view.contiguous() if is_dense else view
        if one.writes and example is not view:
            copied.append((view, example))
        values.append(example)
    made = operator.overload(*values)
    for view, example in copied:
        view.copy_(example)
    return made
