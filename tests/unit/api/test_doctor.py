"""``silo doctor`` reports a compiler only if the kernels it takes can be read here."""

from __future__ import annotations

import importlib.metadata

import pytest

from silo.commands.examine_machine import examine


def _of_cpu() -> dict[str, tuple[str, str]]:
    return {one.part: (one.state, one.detail) for one in examine() if "compile" in one.part and "for cpu" in one.part}


def test_a_kind_without_its_package_compiles_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # The kind of fault: the C compiler is here, and the front end that makes text for it is not.
    version = importlib.metadata.version

    def without_triton(name: str) -> str:
        if name == "triton":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", without_triton)
    (found,) = [value for part, value in _of_cpu().items() if "triton" in part]
    assert found[0] == "optional"
    assert found[1] == "triton is not installed: pip install 'kernel-silo[triton]'"


def test_a_kind_with_its_package_compiles() -> None:
    pytest.importorskip("triton")
    (found,) = [value for part, value in _of_cpu().items() if "triton" in part]
    assert found == ("ok", "by cpu")
