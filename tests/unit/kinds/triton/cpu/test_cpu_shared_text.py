"""What kernels share is compiled apart from their own text, once a process, and leads to the same results and bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import module_of, needs_compiler  # noqa: E402
from silo.compile import native_build  # noqa: E402
from silo.compile.c_compiler import find_compiler  # noqa: E402
from silo.drivers.cpu.levels import host_target, level_of  # noqa: E402
from silo.errors import CompileError  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402
from silo.kinds.triton.cpu.emit.shared_text import BLOCK, REST, part  # noqa: E402
from silo.kinds.triton.cpu.object_build import build_kernel, compile_flags, forget_shared  # noqa: E402

pytestmark = [needs_compiler, pytest.mark.usefixtures("compiles_anew")]


@triton.jit
def product(a, b, out, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    tl.store(out + i * BLOCK + j, tl.dot(tl.load(a + i * BLOCK + j), tl.load(b + i * BLOCK + j)))


@triton.jit
def doubled(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2)


def text_of(kernel, **arguments):
    bits = level_of(host_target()).vector_bits
    return emit_c(module_of(kernel, arguments), CpuOptions(vector_bits=bits)).source


@pytest.fixture
def whole():
    tile = np.ones((32, 32), np.float32)
    return text_of(product, a=tile, b=tile, out=tile, BLOCK=32)


@pytest.fixture
def flags():
    return compile_flags(level_of(host_target()))


def test_a_product_is_in_two_parts_and_each_function_in_one(whole):
    parts = part(whole)
    assert REST in parts.own
    functions, *blocks = parts.shared
    assert "\nint32_t silo_product_" not in functions
    assert not [line for line in functions.splitlines() if line.startswith(BLOCK)]
    assert blocks
    for block in blocks:
        assert len([line for line in block.splitlines() if line.startswith(BLOCK)]) == 1
        assert "silo_dot_right_f32(silo_tile from, int64_t first, int64_t depth," in block
    for name in ("silo_dot_f32(", "silo_dot_right_f32("):
        (definition,) = [line for line in functions.splitlines() if line.startswith("SILO_APART") and name in line]
        assert definition.startswith("SILO_APART void")
    assert not [line for line in parts.own.splitlines() if line.startswith(BLOCK)]
    assert "SILO_APART silo_dot_kernel_f32 silo_dot_f32_" in parts.own


def test_what_has_nothing_to_share_stays_whole():
    text = text_of(doubled, x=np.ones(64, np.float32), out=np.ones(64, np.float32), BLOCK=64)
    assert part(text).own == text
    assert part(text).shared == ()


def test_the_shared_part_is_compiled_once_and_the_bytes_do_not_tell(whole, flags, monkeypatch):
    toolchain = find_compiler(None)
    started = []
    real = native_build.compiler_process

    def counted(command, **more):
        started.append(command)
        return real(command, **more)

    monkeypatch.setattr(native_build, "compiler_process", counted)
    forget_shared()
    first = build_kernel(whole, flags, toolchain).data
    texts = 1 + len(part(whole).shared)
    assert [command.count("-c") for command in started] == [1] * texts + [0]  # all texts, then the objects are linked
    second = build_kernel(whole, flags, toolchain).data
    assert len(started) == texts + 2
    assert first == second
    assert b"silo_dot_" not in first  # hidden


def test_another_config_compiles_only_its_blocks(whole, flags, monkeypatch):
    tile = np.ones((64, 64), np.float32)
    other = text_of(product, a=tile, b=tile, out=tile, BLOCK=64)
    blocks = [set(part(text).shared[1:]) for text in (whole, other)]
    assert part(whole).shared[0] == part(other).shared[0]
    toolchain, compiled = find_compiler(None), []
    real = native_build.compiler_process
    monkeypatch.setattr(
        native_build, "compiler_process", lambda command, **more: compiled.append(command) or real(command, **more)
    )
    forget_shared()
    alone = build_kernel(other, flags, toolchain).data
    forget_shared()
    build_kernel(whole, flags, toolchain)
    compiled.clear()
    assert build_kernel(other, flags, toolchain).data == alone
    new = len(blocks[1] - blocks[0])
    assert len(compiled) == (new + 2 if new else 1)


def test_a_shared_part_that_is_refused(whole, flags):
    forget_shared()
    broken = whole.replace("SILO_APART void silo_dot_f32(", "SILO_APART nothing silo_dot_f32(")
    with pytest.raises(CompileError, match="unknown type name") as caught:
        build_kernel(broken, flags, find_compiler(None))
    Path(str(caught.value).split("kept in ")[1].splitlines()[0]).unlink()
