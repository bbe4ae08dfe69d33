"""The C text of random kernels under sanitizers and by another compiler."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

pytest.importorskip("triton", reason="random kernels are lowered by Triton")

from cpu_samples import needs_compiler
from fuzz.batch import compile_parts, part_of
from fuzz.inputs import contents
from fuzz.judge import difference
from fuzz.lowered import arguments_of, lower
from fuzz.profiles import PROFILES, generate
from fuzz.sanitized import program, read_results
from repetitions import repetitions
from sanitized_program import build_sanitized
from silo.drivers.cpu.levels import host_target, level_of

pytestmark = [needs_compiler, pytest.mark.filterwarnings("ignore:tl.cat")]


def prepared(seeds):
    """Kernels of every profile, their optimized parts, their memory, and what the reference code makes of it."""
    kernels = [generate(seed, profile) for seed in seeds for profile in PROFILES]
    filled = [contents(kernel) for kernel in kernels]
    places = [_addresses(kernel, arrays) for kernel, arrays in zip(kernels, filled, strict=True)]
    lowered = [lower(kernel, place) for kernel, place in zip(kernels, places, strict=True)]
    # In this order: optimizing rewrites a module for good.
    reference = [part_of(one, "reference", place, contract=False) for place, one in enumerate(lowered)]
    parts = [part_of(one, "optimized", place, contract=False) for place, one in enumerate(lowered)]
    expected = run(kernels, compile_parts(reference, contract=False, optimize=False), filled)
    return kernels, parts, filled, expected


def _addresses(kernel, arrays):
    """Addresses that are not multiples of 16, so that nothing is assumed of where the program puts its memory."""
    return {parameter.name: 8 for parameter in kernel.parameters if parameter.pointer}


def run(kernels, loaded, filled):
    """The storages of each kernel after it ran."""
    results = []
    for kernel, one, arrays in zip(kernels, loaded, filled, strict=True):
        assert not isinstance(one, str), one
        copies = {name: array.copy() for name, array in arrays.items()}
        arguments = arguments_of(kernel, copies)
        one.run(kernel.grid, {slot.name: arguments[slot.name] for slot in one.launch.layout})
        results.append(copies)
    return results


def compare(kernels, expected, found):
    for kernel, one, two in zip(kernels, expected, found, strict=True):
        if not kernel.rounded:
            assert difference(kernel, one, two) == "", kernel.text()


@pytest.fixture(scope="module")
def kernels():
    return prepared(range(repetitions("SILO_TEST_SEEDS", 1, 2)))


def test_no_kernel_has_undefined_behaviour_or_leaves_its_memory(tmp_path, kernels):
    some, parts, filled, expected = kernels
    text, data = program(some, parts, filled)
    source, binary, given, written = (tmp_path / name for name in ("all.c", "all", "in", "out"))
    source.write_text(text)
    given.write_bytes(data)
    flags = ["-std=gnu11", "-O1", "-g", "-w", "-fopenmp-simd", "-fno-strict-aliasing", "-ffp-contract=off"]
    checks = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
    build_sanitized(binary, "cc", *level_of(host_target()).flags, *flags, *checks, source, "-lm")
    done = subprocess.run(
        [str(binary), str(given), str(written)], capture_output=True, text=True, check=False, timeout=120
    )
    place = int(done.stdout.split()[-1]) if done.stdout.split()[-1:] != ["done"] else 0
    assert done.stdout.endswith("done\n"), f"{done.stderr[:3000]}\n{some[place].text()}"
    compare(some, expected, read_results(written.read_bytes(), filled))


@pytest.mark.parametrize("compiler", ["clang", "clang-16"])
def test_kernels_are_the_same_by_clang_and_give_no_warning(compiler, kernels):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    some, parts, filled, expected = kernels
    loaded = compile_parts(parts, contract=False, optimize=True, compiler=compiler)
    compare(some, expected, run(some, loaded, filled))


def test_a_write_beyond_an_array_is_noticed(tmp_path):
    """The sanitizers see what they are there for."""
    kernel = generate(1, "elementwise")
    arrays = {name: array[:-1] if array.size > 1 else array for name, array in contents(kernel).items()}
    part = part_of(lower(kernel, _addresses(kernel, arrays)), "optimized", 0, contract=False)
    text, data = program([kernel], [part], [arrays])
    source, binary, given = (tmp_path / name for name in ("all.c", "all", "in"))
    source.write_text(text)
    given.write_bytes(data)
    flags = [*level_of(host_target()).flags, "-std=gnu11", "-O1", "-w", "-fopenmp-simd"]
    build_sanitized(binary, "cc", *flags, "-fsanitize=address", source, "-lm")
    done = subprocess.run([str(binary), str(given), "/dev/null"], capture_output=True, text=True, check=False)
    assert "heap-buffer-overflow" in done.stderr
    assert np.prod(kernel.grid) >= 1
