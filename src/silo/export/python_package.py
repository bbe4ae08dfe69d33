"""The text of the Python package in a wheel: one function a kernel, over its shared library."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from silo.core.dtypes import DType
from silo.export.operations import ExportedOperation, GivenArgument, OperationArgument

__all__ = ["package_files"]

_WORDS = {
    OperationArgument.TENSOR: "tensor",
    OperationArgument.DESCRIPTOR: "tensor, taken as a descriptor",
    OperationArgument.INTEGER: "int",
    OperationArgument.REAL: "float",
    OperationArgument.BOOLEAN: "bool",
    OperationArgument.TEXT: "str",
    OperationArgument.DTYPE: "dtype",
    OperationArgument.ANY: "constant",
}

_HEAD = '''\
"""Kernels that were compiled and tuned with Silo, which is not needed to call them.

They take numpy arrays and whatever else is of DLPack through tvm-ffi{torch}.
A call is queued on the current stream of its arrays' device. Made by `silo export --wheel`.
"""

from {package}._calls import Kernel, Library

__all__ = [{exported}]

__version__ = {version!r}

_LIBRARY = Library({name!r}, {operators!r})


def operators():
    """The operators of torch: ``torch.ops.{name}``, which torch.compile takes as they are."""
    return _LIBRARY.operators()


def functions():
    """The library as a module of tvm-ffi: ``functions()["{first}"](...)``."""
    return _LIBRARY.functions()
'''


def package_files(
    package: str, version: str, name: str, operations: Sequence[ExportedOperation], *, torch: bool
) -> dict[str, bytes]:
    """The modules of ``package`` by path; ``name`` is the exported library's, ``torch``: it comes with operators."""
    names = [one.name for one in operations]
    head = _HEAD.format(
        torch=", torch tensors through its operators" if torch else ", torch tensors too",
        package=package,
        exported=", ".join(f'"{one}"' for one in sorted([*names, "functions", "operators"])),
        version=version,
        name=name,
        operators=tuple(names) if torch else (),
        first=names[0] if names else "",
    )
    text = "".join([head, *(_function(one) for one in operations)])
    calls = (files("silo.export") / "templates" / "package_calls.py").read_bytes()
    return {f"{package}/__init__.py": text.encode(), f"{package}/_calls.py": calls}


def _function(operation: ExportedOperation) -> str:
    arguments = operation.arguments
    free = len(arguments)
    while free > 0 and _default(arguments[free - 1]) is not None:
        free -= 1
    words = [one.name if at < free else f"{one.name}={_default(one)}" for at, one in enumerate(arguments)]
    described = [(at, one.block) for at, one in enumerate(arguments) if one.block]
    words += ["*", *(f"{block}=None" for _, block in described), "grid=None"]
    tensors = [at for at, one in enumerate(arguments) if one.given is OperationArgument.TENSOR and not one.optional]
    written = tuple(at for at, one in enumerate(arguments) if one.writes)
    given = ", ".join(one.name for one in arguments) + ("," if len(arguments) == 1 else "")
    blocks = ", ".join(f'"{block}": ({at}, {block})' for at, block in described)
    lines = [f"    {one.name}: {_words(one)}" for one in arguments]
    grid = "the number of programs along each axis" + ("; its own where it is left out" if operation.has_grid else "")
    return (
        f"\n\n_{operation.name} = Kernel(_LIBRARY, {operation.name!r}, {tensors[0] if tensors else -1}, {written!r})\n"
        f"\n\ndef {operation.name}({', '.join(words)}):\n"
        f'    """Launch the kernel.\n\n' + "\n".join([*lines, f"    grid: {grid}"]) + '\n    """\n'
        f"    _{operation.name}(({given}), grid, {{{blocks}}})\n"
    )


def _default(argument: GivenArgument) -> str | None:
    """As Python spells it; None: it has none, or one that no literal is."""
    default = argument.default
    if not argument.has_default or isinstance(default, DType | tuple):
        return None
    if isinstance(default, float) and (default != default or abs(default) == float("inf")):  # noqa: PLR0124  # nan
        return f'float("{default}")'
    return repr(default) if isinstance(default, bool | int | float | str) or default is None else None


def _words(argument: GivenArgument) -> str:
    dtypes = " or ".join(str(one) for one in argument.dtypes)
    parts = [f"{dtypes} {_WORDS[argument.given]}".strip()]
    if argument.values and argument.given in (OperationArgument.TEXT, OperationArgument.ANY, OperationArgument.INTEGER):
        parts.append("one of " + ", ".join(sorted(repr(one) for one in argument.values if one is not None)))
    if argument.optional:
        parts.append("or None")
    if argument.writes:
        parts.append("written")
    return ", ".join(parts).replace("\\", "\\\\").replace('"""', "'''")
