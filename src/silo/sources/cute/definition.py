"""``silo.cute``: kernels of the CuTe DSL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from silo.core.config import Config
from silo.core.grids import Grid
from silo.core.search_space import DeclaredSpace
from silo.core.values import Value

__all__ = ["LaunchOption", "cute"]

LaunchOption: TypeAlias = int | str | Sequence[int | str] | Callable[[Any], object]


def cute(
    function: object,
    *,
    signature: str | Mapping[str, Value] | None = None,
    block: LaunchOption | None = None,
    cluster: LaunchOption | None = None,
    smem: int | str | Callable[[Any], object] | None = None,
    host: Literal["silo", "dsl"] = "silo",
    layouts: Literal["static", "dynamic"] = "static",
    space: Mapping[str, Iterable[Value]] | Iterable[Config | Mapping[str, Value]] | DeclaredSpace | None = None,
    grid: Callable[[Any], object] | Sequence[int] | Grid | None = None,
    key: Sequence[str] = (),
    name: str | None = None,
    release_gil: bool = True,
) -> Any:  # noqa: ANN401  # what silo.cute gives: a kernel
    """Make a Silo kernel of a CuTe DSL one."""
    raise NotImplementedError
