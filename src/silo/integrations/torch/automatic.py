"""Makes operators for kernels that are called in a trace of torch: one for each combination of types and options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from silo.core.signature import NoDefault, ParameterKind
from silo.core.values import canonical_json, digest, value_to_json
from silo.errors import ArgumentError
from silo.forks import Mutex
from silo.integrations.torch.call_facts import facts_of_call
from silo.integrations.torch.call_forms import TorchCallForm
from silo.integrations.torch.operator import TorchOp, make_operator
from silo.kernels.kernel import Kernel
from silo.launch.torch_versions import load_torch

__all__ = ["NAMESPACE", "named_arguments", "operator_for"]

NAMESPACE = "silo"

# The operators, by the id of their kernel and their key. An operator references its kernel, so that the id is not
# reused.
_made: dict[tuple[int, str], TorchOp] = {}
_lock = Mutex()


def named_arguments(kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call by name, in the kernel's order, without parameters that the config sets.

    Raises:
        ArgumentError: an argument is missing or unknown; or the call passes an option, which operators do not take.
    """
    names = kernel.source.signature.names
    if len(args) > len(names):
        raise ArgumentError(f"{kernel.name} was given {len(args)} arguments, and has {len(names)}: {', '.join(names)}")
    arguments = {**dict(zip(names, args, strict=False)), **kwargs}
    odd = [name for name in arguments if name not in kernel.argument_names]
    if odd:
        raise ArgumentError(
            f"{kernel.name} is called without a grid while torch traces, so it becomes an operator, which takes "
            f"{', '.join(kernel.argument_names)}, and the call gives {', '.join(odd)}: set that in the kernel's "
            "space, or call it with a grid"
        )
    missing = [
        name
        for name in kernel.argument_names
        if name not in arguments and isinstance(kernel.source.signature[name].default, NoDefault)
    ]
    if missing:
        raise ArgumentError(f"{kernel.name}: the call leaves out {', '.join(missing)}")
    return {name: arguments[name] for name in kernel.argument_names if name in arguments}


def operator_for(
    kernel: Kernel,
    example: Mapping[str, object],
    form: TorchCallForm | None = None,
    sharing: Sequence[frozenset[str]] = (),
) -> TorchOp:
    """Returns the operator for calls with arguments of an example's types; in the example a dtype represents a tensor.

    Raises the errors of :func:`silo.torch_op`.

    The operator's name is the same in every process: the kernel's name, and a digest of its source, declaration and
    example.

    Args:
        kernel: the kernel.
        example: the arguments by name. Without a ``form``, missing arguments have their defaults.
        form: the grid, constexprs and options of a call with a grid.
        sharing: groups of tensors that share memory. If one tensor of a group is written, the operator marks all of
            them as written, so that torch keeps them in shared memory when it transforms the surrounding program.
    """
    filled = dict(example)
    if form is None:
        signature = kernel.source.signature
        filled = {name: example.get(name, signature[name].default) for name in kernel.argument_names}
    key = f"{_form(kernel, filled)}{_form_text(kernel, form)}"
    if sharing:
        key += f"; in common memory: {sorted(sorted(group) for group in sharing)}"
    with _lock:
        operator = _made.get((id(kernel), key))
        if operator is None:
            torch = load_torch()
            name = f"{NAMESPACE}::{_short(kernel, key)}"
            constants = {} if form is None else dict(form.constants)
            facts = facts_of_call(kernel, {**filled, **constants}, None, {} if form is None else dict(form.options))
            facts = facts.with_shared(sharing)
            module = kernel.source.location
            operator = make_operator(
                torch, kernel, name, filled, facts, {}, None, None, trusted=False, module=module, form=form
            )
            _made[id(kernel), key] = operator
        return operator


def _form_text(kernel: Kernel, form: TorchCallForm | None) -> str:
    """Returns the part of an operator's key that a call with a grid adds to the arguments."""
    if form is None:
        return ""
    fixed = {name: value_to_json(kernel.source.constant(value)) for name, value in form.fixed.items()}
    return f"; fixed: {canonical_json(fixed).decode()}; grid: {form.grid}"


def _form(kernel: Kernel, example: Mapping[str, object]) -> str:
    """Returns an operator's key: the type of each argument, and the values that are part of the code."""
    signature = kernel.source.signature
    parts = [
        f"{name}={value!r}"
        if signature[name].kind is ParameterKind.CONSTEXPR or _is_dtype(value)
        else f"{name}:{type(value).__name__}"
        for name, value in example.items()
    ]
    return ", ".join(parts)


def _is_dtype(value: object) -> bool:
    return type(value).__module__ == "torch" and type(value).__name__ == "dtype"


def _short(kernel: Kernel, form: str) -> str:
    word = re.sub(r"\W+", "_", kernel.name)
    configs = [] if kernel.rule is not None else [str(config) for config in kernel.space.configs()][:64]
    declared = [repr(kernel.grid), *configs, repr((kernel.tune, kernel.check, kernel.deterministic))]
    number = 0
    while True:
        key = digest("silo.torch-operator/2", [kernel.source.fingerprint, form, *declared, number])
        operator_name = f"{word}_{key[:12]}"
        if not any(operator.name == f"{NAMESPACE}::{operator_name}" for operator in _made.values()):
            return operator_name
        number += 1  # another kernel object with the same declaration needs an operator of its own
