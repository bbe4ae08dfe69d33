"""Measures on a GPU the host's time of a launch over a C loop, and the device's time of products beside the DSL's.

The elementwise kernel and a small product come from the bundle. A row that needs the DSL has the reason if it is
missing.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from bench.cute.report import Bar, Figure, figure, missing
from bench.launch import floor
from bench.launch.cases import Call
from bench.launch.peers import Row
from bench.launch.run import WARMUP, Loop, Measured, loop_of, measure

N = 1 << 16
SMALL, LARGE = (512, 768, 1024), (4096, 4096, 4096)
LARGE_CONFIG = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "STAGES": 4}
STATIC, DYNAMIC = "Silo, static", "Silo, dynamic"
HOST_BARS = (Bar(STATIC, 1.2),)
DEVICE_LIMIT = 1.03
ASLEEP_CYCLES = 20_000_000  # about 10 ms, in which the host queues a whole burst
DSL = "the DSL's own call"


def arch() -> str:
    """Return the device's arch, with the suffix ``a`` for the arch-specific instructions of Hopper and later."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}" + "a" * (major >= 9)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _check(right: bool) -> None:  # noqa: FBT001
    if not right:
        raise RuntimeError("its result is wrong")


def host_times(bundle: Path, rounds: int, burst: int) -> list[Figure]:
    """Return the nanoseconds of launches of the elementwise kernel, each burst paired with a burst of the floor."""
    import torch

    import silo

    kernels: Any = silo.load(bundle)
    x, y, out = torch.randn(N, device="cuda"), torch.randn(N, device="cuda"), torch.zeros(N, device="cuda")
    names: dict[str, Any] = {"x": x, "y": y, "out": out, "n": N}
    compiled = kernels["add"].compiled(x, y, out, N)
    threads = compiled.config.as_dict()["THREADS"]

    def dsl_plain() -> Call:
        from cuda.bindings import driver
        from cutlass.cute.runtime import from_dlpack

        from bench.cute import dsl

        given = {name: from_dlpack(names[name], assumed_align=16) for name in ("x", "y", "out")}
        stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
        made = {**given, "n": N, "s": stream, "k": dsl.compiled_add(N, threads, arch())}
        return Call("k(x, y, out, n, s)", made)

    def dsl_ffi() -> Call:
        from bench.cute import dsl

        return Call("k(x, y, out, n)", {**names, "k": dsl.compiled_add(N, threads, arch(), dsl.FFI)})

    def ours(name: str) -> Callable[[], Call]:
        return lambda: Call("k(x, y, out, n)", {**names, "k": kernels[name]})

    ways = {
        STATIC: ours("add"),
        DYNAMIC: ours("dynamic_add"),
        "the DSL, from_dlpack made before": dsl_plain,
        "the DSL, tvm-ffi and torch tensors": dsl_ffi,
    }
    found: dict[str, Figure] = {}
    prepared: list[Measured] = []
    for name, make in ways.items():
        try:
            loop = loop_of(make())
            out.zero_()
            loop(WARMUP)
            torch.cuda.synchronize()
            _check(bool(torch.equal(out, x + y)))
        except Exception as error:  # noqa: BLE001  # what a peer raises is a result
            found[name] = missing(name, _reason(error))
            continue
        prepared.append(Measured(Row(name, name, cast("Any", make)), loop))

    def failed(row: Row, error: Exception) -> None:
        found[row.name] = missing(row.name, _reason(error))

    with tempfile.TemporaryDirectory(prefix="silo-cute-") as folder:
        under = _floor(compiled, names, threads, Path(folder))
        under(WARMUP)
        measure(prepared, under, rounds=rounds, burst=burst, synchronize=torch.cuda.synchronize, failed=failed)
    for one in prepared:
        if one.row.name not in found:
            found[one.row.name] = figure(one.row.name, one.wall, one.floor_wall, HOST_BARS)
    return [found[name] for name in ways]


def _floor(compiled: Any, names: Mapping[str, Any], threads: int, folder: Path) -> Loop:
    """Return the floor: a C loop over the driver with the same code, grid and arguments."""
    import torch

    info = compiled._artifact.launch  # noqa: SLF001
    values = [getattr(names[slot.name], "data_ptr", lambda slot=slot: names[slot.name])() for slot in info.layout]
    return floor.make(
        floor.driver("libcuda.so.1", folder, torch.cuda.current_device()),
        compiled.asm["cubin"],
        info.entry,
        grid=(-(-N // threads), 1, 1),
        threads=threads,
        shared_bytes=info.shared_bytes,
        stream=torch.cuda.current_stream().cuda_stream,
        values=values,
    ).burst


def device_times(bundle: Path, rounds: int, burst: int) -> list[Figure]:
    """Return the device's microseconds of matrix products; each row is paired with the DSL's own in the same round."""
    import silo

    found: list[Figure] = []
    kernels: Any = silo.load(bundle)
    small = kernels["wgmma_gemm"]

    def from_bundle(a: Any, b: Any, c: Any) -> Callable[[], Any]:
        return lambda: small(a, b, c)

    def compiled_here(host: str) -> Callable[[Any, Any, Any], Callable[[], Any]]:
        def prepare(a: Any, b: Any, c: Any) -> Callable[[], Any]:
            from bench.cute import dsl

            kernel: Any = dsl.silo_gemm(host, LARGE_CONFIG)
            return lambda: kernel(a, b, c)

        return prepare

    found += _products(SMALL, {"Silo, from the bundle": from_bundle}, small, rounds, burst)
    hosts = {f'Silo, host="{host}"': compiled_here(host) for host in ("silo", "dsl")}
    found += _products(LARGE, hosts, None, rounds, burst)
    return found


def _products(
    size: tuple[int, int, int],
    ways: Mapping[str, Callable[[Any, Any, Any], Callable[[], Any]]],
    bundled: Any,
    rounds: int,
    burst: int,
) -> list[Figure]:
    import torch

    m, n, k = size
    a, b = (torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n))
    c = torch.zeros(m, n, device="cuda", dtype=torch.bfloat16)
    expected = a.float() @ b.float().T
    config = LARGE_CONFIG if bundled is None else bundled.compiled(a, b, c).config.as_dict()
    label = f" {m}x{n}x{k}"

    def dsl_call(a: Any, b: Any, c: Any) -> Callable[[], Any]:
        from cuda.bindings import driver
        from cutlass.cute.runtime import from_dlpack

        from bench.cute import dsl

        given = [from_dlpack(one, assumed_align=16) for one in (a, b, c)]
        stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
        kernel = dsl.compiled_gemm(size, config, arch())
        return lambda: kernel(*given, stream)

    calls: dict[str, Callable[[], Any]] = {}
    found: dict[str, Figure] = {}
    for name, prepare in {DSL: dsl_call, **ways}.items():
        try:
            call = prepare(a, b, c)
            c.zero_()
            call()
            torch.cuda.synchronize()
            _check(torch.allclose(c.float(), expected, rtol=1e-2, atol=1e-3 * float(expected.abs().max())))
            calls[name] = call
        except Exception as error:  # noqa: BLE001  # what a peer raises is a result
            found[name] = missing(name + label, _reason(error))
    samples = {name: list[float]() for name in calls}
    shuffle = random.Random(0)
    order = list(calls)
    for number in range(rounds + 2):
        shuffle.shuffle(order)
        for name in order:
            taken = _burst_us(calls[name], burst)
            if number >= 2:
                samples[name].append(taken)
    others = samples.get(DSL)
    for name in calls:
        if others is None:
            median = sorted(samples[name])[rounds // 2]
            found[name] = missing(name + label, f"{median:.2f} us, and nothing to compare with")
        else:
            bars = [] if name == DSL else [Bar(name + label, DEVICE_LIMIT)]
            found[name] = figure(name + label, samples[name], others, bars)
    return [found[name] for name in (DSL, *ways)]


def _burst_us(call: Callable[[], Any], burst: int) -> float:
    """Return the device's microseconds for one launch of a burst that is queued while the device sleeps."""
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(ASLEEP_CYCLES)  # noqa: SLF001
    start.record()
    for _ in range(burst):
        call()
    if start.query():
        raise RuntimeError("the device woke before the burst was queued; make --device-burst smaller")
    end.record()
    torch.cuda.synchronize()
    return 1e3 * start.elapsed_time(end) / burst
