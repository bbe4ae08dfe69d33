"""Heuristics as the space of kernels: given, and guessed where a call leaves block sizes open."""
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false

import inspect
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("triton", reason="compiles Triton kernels")

import triton
import triton.language as tl

import silo
from silo import heuristics
from silo.core import grids
from silo.core.config import Config
from silo.core.device import Target
from silo.errors import CaseError, NoVariantError, SpaceError, TraceError
from silo.heuristics import KernelFacts, ReductionHint
from silo.launch.runtime import inspect_call
from silo.settings import override

X = np.arange(5000, dtype=np.float32)


def out():
    return np.zeros_like(X)


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory):
    home = tmp_path_factory.mktemp("store")
    with override(home=home, tune="cached"):
        yield home


@pytest.fixture
def own_store(tmp_path):
    """What a test measures is known to no other."""
    with override(home=tmp_path / "own"):
        yield


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def softmax(x, out, stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0) * stride
    i = tl.arange(0, BLOCK_SIZE)
    v = tl.exp(tl.load(x + row + i, mask=i < n_cols, other=-float("inf")))
    tl.store(out + row + i, v / tl.sum(v, 0), mask=i < n_cols)


@triton.jit
def row_sums(x, out, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    total = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        i = start + tl.arange(0, BLOCK_N)
        mask = (rows[:, None] < M) & (i[None, :] < N)
        total += tl.sum(tl.load(x + rows[:, None] * N + i[None, :], mask=mask, other=0.0), 1)
    tl.store(out + rows, total, mask=rows < M)


@triton.jit
def product(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        inner = k * BLOCK_K + tl.arange(0, BLOCK_K)
        x = tl.load(a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        y = tl.load(
            b + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total += tl.dot(x, y)
    tl.store(c + rows[:, None] * N + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def part_sums(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))


def config_of(kernel, *args, grid=None, **kwargs):
    known = kernel.kernel
    named = kwargs if grid is None else {**kwargs, "grid": grid}
    return known.resolver.understand(inspect_call(known.resolver.native, known.source.signature, *args, **named))


def by_n(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def test_a_heuristic_as_the_space():
    kernel = silo.kernel(
        space=heuristics.space("pointwise", {"x": "n"}, names={"XBLOCK": "BLOCK"}), grid=grids.flat("n", "BLOCK")
    )(double)
    y = out()
    kernel(X, y, X.size)
    assert (y == 2 * X).all()
    assert kernel.kernel.key == ("n",)
    text = kernel.explain(X, y, X.size)
    assert "config: BLOCK=256 (heuristic: " in text
    assert "the pointwise heuristic for cpu:" in text
    assert "and x=8192 (x from n)" in text
    assert config_of(kernel, X, y, X.size).candidates == (Config.of(BLOCK=256), Config.of(BLOCK=128))
    assert config_of(kernel, X, y, 1 << 20).candidates == (Config.of(BLOCK=1024), Config.of(BLOCK=512))
    given = config_of(kernel, X, y, X.size, BLOCK=32)
    assert given.candidates[0].as_dict()["BLOCK"] == 32
    found = config_of(kernel, X, y, X.size).candidates_on(Target.parse("cuda:sm_90"), {})
    assert found[0] == Config.of(BLOCK=256, num_warps=4, num_stages=1)


def test_sizes_constraints_and_own_functions():
    def own(target, hints, facts, effort):
        assert facts.loads == 7
        return heuristics.user([{"BLOCK": size} for size in (64, hints["x"])])

    made = heuristics.space(own, {"x": lambda a: a.n // 2}, facts=KernelFacts(loads=7))
    kernel = silo.kernel(space=made, grid=grids.flat("n", "BLOCK"))(double)
    assert config_of(kernel, X, out(), 4096).candidates == (Config.of(BLOCK=64), Config.of(BLOCK=2048))
    kernel = silo.kernel(space=made, constraints=[lambda c: c.BLOCK > 64], grid=grids.flat("n", "BLOCK"))(double)
    assert config_of(kernel, X, out(), 4096).candidates == (Config.of(BLOCK=2048),)


@pytest.mark.parametrize(
    ("space", "key", "said"),
    [
        (("pointwise", {"x": "n"}), None, "sets XBLOCK, which is not a constexpr of the kernel.*has BLOCK: say"),
        (("pointwise", {"x": "count"}, {"XBLOCK": "BLOCK"}), None, "'count' is not a scalar parameter"),
        (("pointwise", {"x": lambda a: a.x.shape[0]}, {"XBLOCK": "BLOCK"}), None, "a size of the pointwise heuristic"),
        (("pointwise", {"x": "n"}, {"XBLOCK": "BLOCK"}), ["out"], "reads n, which the key lacks"),
    ],
)
def test_a_space_that_does_not_fit_the_kernel(space, key, said):
    names = space[2] if len(space) > 2 else None
    with pytest.raises(SpaceError, match=said):
        silo.kernel(space=heuristics.space(space[0], space[1], names=names), key=key)(double)


def test_bad_spaces_are_told_before_there_is_a_kernel():
    with pytest.raises(SpaceError, match="no heuristic 'pointless'; there are pointwise"):
        heuristics.space("pointless", {"x": "n"})
    with pytest.raises(SpaceError, match="'w' names no dimension"):
        heuristics.space("pointwise", {"w": "n"})


def test_a_grid_whose_names_the_kernel_lacks():
    with pytest.raises(TraceError, match=r"the grid of double .* reads numel; the kernel has x, out, n, BLOCK"):
        silo.kernel(grid=grids.flat("numel", "BLOCK"))(double)


def test_a_grid_s_requirements_are_constraints_of_the_space():
    split = grids.split_scan(1, "n", "BLOCK", xblock="num_warps")
    kernel = silo.kernel(space={"BLOCK": [64], "num_warps": [1, 2]}, grid=split)(double)
    assert kernel.kernel.space.configs() == (Config.of(BLOCK=64, num_warps=1),)


def test_blocks_that_a_call_leaves_open():
    kernel = silo.kernel(double)
    y = out()
    kernel[by_n](X, y, X.size)
    assert (y == 2 * X).all()
    assert "guessed: neither tl.dot nor a reduction" in kernel.explain(X, y, X.size, grid=by_n)
    assert config_of(kernel, X, y, X.size, grid=by_n).key == ("n",)
    for size in (17, 100, 5000):  # other buckets, other configs
        y = out()
        kernel[by_n](X, y, size)
        assert (y[:size] == 2 * X[:size]).all()
        assert not y[size:].any()


def test_a_call_that_gives_its_blocks_is_as_it_was():
    kernel = silo.kernel(double)
    situation = config_of(kernel, X, out(), X.size, BLOCK=64, num_warps=8)
    assert (situation.rule, situation.key, situation.candidates) == (None, (), (Config.of(num_warps=8),))
    misses = []
    resolver = kernel.kernel.resolver
    understand = resolver.understand
    resolver.understand = lambda *call: misses.append(call) or understand(*call)
    for size in (16, 160, 1600):
        kernel[(-(-size // 64),)](X, out(), size, BLOCK=64)
    assert len(misses) == 1, "the size is not part of the guard"
    for size in (16, 160, 1600):
        kernel[by_n](X, out(), size)
    assert len(misses) == 4


@pytest.mark.usefixtures("own_store")
def test_open_blocks_are_tuned_and_kept():
    kernel = silo.kernel(tune="auto")(double)
    y = out()
    kernel[by_n](X, y, X.size)
    assert (y == 2 * X).all()
    assert "bucket winner: measured for this bucket" in kernel.explain(X, y, X.size, grid=by_n)


def test_a_grid_that_does_not_count_the_open_block():
    kernel = silo.kernel(double)
    with pytest.raises(
        SpaceError, match=r"leaves BLOCK open, and the grid \(5, 1, 1\) of the call does not depend on it"
    ):
        kernel[(5,)](X, out(), X.size)
    kernel = silo.kernel(grid=(5,))(double)
    with pytest.raises(SpaceError, match=r"the declared grid \(5\) does not depend on it"):
        kernel(X, out(), X.size)
    kernel = silo.kernel(grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))(double)
    y = out()
    kernel(X, y, X.size)
    assert (y == 2 * X).all()


PLAIN = r"leaves BLOCK open, and the grid \(3,.*\) of the call does not depend on it"


@pytest.mark.usefixtures("own_store")
@pytest.mark.parametrize("tune", ["cached", "auto", "off"])
def test_no_later_call_escapes_that(tune):
    """Not one of another size, not one like a call that was served, not one that is bound."""
    kernel = silo.kernel(tune=tune)(double)
    for size in (100, 120, 5000):
        y = out()
        kernel[by_n](X, y, size)
        assert (y[:size] == 2 * X[:size]).all()
    for size in (100, 120, 5000, 5000):
        y = out()
        with pytest.raises(SpaceError, match=PLAIN):
            kernel[(3,)](X, y, size)
        with pytest.raises(SpaceError, match="leaves BLOCK open, and the grid 3 of the call"):
            kernel(X, y, size, grid=3)
        with pytest.raises(SpaceError, match=r"leaves BLOCK open, and the grid \[3\] of the call"):
            kernel.bind(X, y, size, grid=[3])
        assert not y.any()
        kernel[(-(-size // 64),)](X, y, size, BLOCK=64)
        assert (y[:size] == 2 * X[:size]).all()
    y = out()
    kernel[by_n](X, y, 5000)
    assert (y == 2 * X).all()


def test_a_second_process_is_told_too(tmp_path):
    program = tmp_path / "later.py"
    program.write_text(
        "import numpy as np, silo, triton, triton.language as tl\n"
        "from silo.errors import SpaceError\n"
        "@silo.kernel\n"
        "@triton.jit\n"
        "def double(x, out, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)\n"
        "x = np.arange(5000, dtype=np.float32)\n"
        "for grid in (lambda meta: (triton.cdiv(meta['n'], meta['BLOCK']),), (3,), lambda meta: (9,)):\n"
        "    try:\n"
        "        double[grid](x, np.zeros_like(x), 5000)\n"
        "        print('launched')\n"
        "    except SpaceError as error:\n"
        "        print('refused')\n"
    )
    environment = {**os.environ, "SILO_HOME": str(tmp_path / "store"), "SILO_TUNE": "auto"}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        assert done.stdout.split() == ["launched", "refused", "launched"]


def test_a_checked_call_is_told_too():
    kernel = silo.kernel(check=True)(double)
    y = out()
    kernel[by_n](X, y, X.size)
    with pytest.raises(SpaceError, match=PLAIN):
        kernel[(3,)](X, y, X.size)


@pytest.mark.parametrize("check", [False, True])
def test_cases_of_kernels_that_leave_blocks_open(tmp_path, check):
    from silo.commands.run_cases import run_cases

    text = (
        "import silo, triton, triton.language as tl\n"
        "@silo.kernel\n"
        "@triton.jit\n"
        "def double(x, out, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)\n"
        "@double.cases(n=[100, 300])\n"
        "def case(n, make):\n"
        "    x, out = make.normal(n), make.empty(n)\n"
        "    return silo.Case(args=(x, out, n), expected={'out': lambda: x.host * 2}, grid=GRID)\n"
    )
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(text.replace("GRID", "lambda a: (silo.cdiv(a.n, a.BLOCK),)"))
    bad.write_text(text.replace("GRID", "(7,)"))
    rows = run_cases(good, check=check)
    assert [row.ok for row in rows] == [True, True]
    with pytest.raises(CaseError, match=r"case n=100 of double .*: double: the call leaves BLOCK open, and the"):
        run_cases(bad, check=check)


def test_whole_rows():
    kernel = silo.kernel(softmax)
    x = np.random.default_rng(1).random((7, 300), np.float32)
    y = np.zeros_like(x)
    kernel[(7,)](x, y, 300, 300)
    expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    assert config_of(kernel, x, y, 300, 300, grid=(7,)).candidates == (Config.of(BLOCK_SIZE=512),)


@triton.jit
def in_pairs(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * 16 + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def test_a_constant_of_the_kernel_is_not_taken_for_a_block():
    kernel = silo.kernel(in_pairs)
    situation = config_of(kernel, X, out(), 100, grid=by_n)
    assert situation.rule.made_by.kind == "persistent_reduction", "programs start 16 apart, whatever the block"
    assert situation.rule.placed == ()


def test_rows_in_a_loop():
    kernel = silo.kernel(row_sums)
    x = np.random.default_rng(1).random((70, 300), np.float32)
    y = np.zeros(70, np.float32)

    def grid(meta):
        return (triton.cdiv(meta["M"], meta["BLOCK_M"]),)

    kernel[grid](x, y, 70, 300)
    np.testing.assert_allclose(y, x.sum(1), rtol=1e-5)
    situation = config_of(kernel, x, y, 70, 300, grid=grid)
    assert situation.rule.made_by.kind == "reduction"
    assert situation.rule.made_by.names == {"R0_BLOCK": "BLOCK_N", "XBLOCK": "BLOCK_M"}
    assert set(situation.key) == {"M", "N"}


def test_products():
    kernel = silo.kernel(product)
    a = np.random.default_rng(1).random((40, 50), np.float32)
    b = np.random.default_rng(2).random((50, 60), np.float32)
    c = np.zeros((40, 60), np.float32)

    def grid(meta):
        return triton.cdiv(meta["M"], meta["BLOCK_M"]), triton.cdiv(meta["N"], meta["BLOCK_N"])

    kernel[grid](a, b, c, 40, 60, 50)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)
    situation = config_of(kernel, a, b, c, 40, 60, 50, grid=grid)
    assert situation.rule.made_by.sizes == {"x": "N", "y": "M", "r": "K"}
    assert config_of(kernel, a, b, c, 40, 60, 50, grid=grid, BLOCK_K=32).candidates[0].as_dict()["BLOCK_K"] == 32


def test_every_candidate_of_a_guess_gives_the_right_result():
    """Whatever the size: a guess that depends on the block would show."""
    random = np.random.default_rng(4)
    for size in (1, 17, 300):
        x = random.random((9, size), np.float32)

        def rows(meta):
            return (triton.cdiv(meta["M"], meta["BLOCK_M"]),)

        for kernel, args, grid, expected in (
            (double, (x.reshape(-1), np.zeros(x.size, np.float32), x.size), by_n, 2 * x.reshape(-1)),
            (softmax, (x, np.zeros_like(x), size, size), (9,), np.exp(x) / np.exp(x).sum(1, keepdims=True)),
            (row_sums, (x, np.zeros(9, np.float32), 9, size), rows, x.sum(1)),
        ):
            made = silo.kernel(kernel)
            for config in config_of(made, *args, grid=grid).candidates:
                args[1][...] = 0
                made[grid](*args, **config.as_dict())
                np.testing.assert_allclose(args[1], expected, rtol=1e-4, err_msg=f"{kernel} {size} {config}")


def test_open_blocks_keep_to_constraints_and_run_in_checking_mode():
    kernel = silo.kernel(constraints=[lambda c: c.BLOCK < 256], check=True)(double)
    y = out()
    kernel[by_n](X, y, X.size)
    assert (y == 2 * X).all()
    assert config_of(kernel, X, y, X.size, grid=by_n).candidates == (Config.of(BLOCK=128),)


def test_what_cannot_be_guessed_is_said():
    kernel = silo.kernel(part_sums)
    with pytest.raises(SpaceError, match=r"part_sums: the call leaves BLOCK open.*its results depend on that size"):
        kernel[by_n](X, out(), X.size)
    y = out()
    kernel[(5,)](X, y, X.size, BLOCK=1024)
    np.testing.assert_allclose(y[:5].sum(), X.sum(), rtol=1e-5)


def test_a_bundle_has_each_target_s_own_configs(tmp_path):
    program = tmp_path / "kernels.py"
    program.write_text(
        "import silo, triton, triton.language as tl\n"
        "from silo.core import grids\n"
        "from silo import heuristics\n"
        "@silo.kernel(space=heuristics.space('pointwise', {'x': 'n'}, names={'XBLOCK': 'BLOCK'}),"
        " grid=grids.flat('n', 'BLOCK'))\n"
        "@triton.jit\n"
        "def double(x, out, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)\n"
        "@silo.kernel(grid=grids.flat('n', 'BLOCK_SIZE'))\n"
        "@triton.jit\n"
        "def triple(x, out, n, BLOCK_SIZE: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)\n"
        "    tl.store(out + i, tl.load(x + i, mask=i < n) * 3, mask=i < n)\n"
        "@double.cases(n=[1000, 1 << 17])\n"
        "@triple.cases(n=[1000, 1 << 17])\n"
        "def case(n, make):\n"
        "    x, out = make.normal(n), make.empty(n)\n"
        "    return silo.Case(args=(x, out, n))\n"
    )
    from silo.commands.build_bundle import build_bundle

    build_bundle([program], tmp_path / "k.silo", targets=["cpu", "cuda:sm_90"], tune="off")
    kernels = silo.load(tmp_path / "k.silo", trust=True)
    for name, factor in (("double", 2), ("triple", 3)):
        y = out()
        getattr(kernels, name)(X, y, X.size)
        assert (y == factor * X).all()
    seen = {}
    from silo.bundle.reader import open_bundle

    with open_bundle(tmp_path / "k.silo") as bundle:
        for kernel in bundle.contents().kernels:
            for one in kernel.variants:
                variant = one.artifact.variant
                seen.setdefault((kernel.name, variant.target.kind), set()).add(str(variant.config))
    assert "BLOCK=256" in seen["double", "cpu"]
    assert "BLOCK=256, num_stages=1, num_warps=4" in seen["double", "cuda"]
    assert "BLOCK_SIZE=1024, num_stages=1, num_warps=4" in seen["triple", "cuda"]


def test_a_bundle_never_uses_a_block_that_is_shorter_than_a_row(tmp_path):
    program = tmp_path / "rows.py"
    program.write_text(
        "import silo, triton, triton.language as tl\n"
        "@silo.kernel\n"
        "@triton.jit\n"
        "def softmax(x, out, stride, n_cols, BLOCK_SIZE: tl.constexpr):\n"
        "    row = tl.program_id(0) * stride\n"
        "    i = tl.arange(0, BLOCK_SIZE)\n"
        "    v = tl.exp(tl.load(x + row + i, mask=i < n_cols, other=-float('inf')))\n"
        "    tl.store(out + row + i, v / tl.sum(v, 0), mask=i < n_cols)\n"
        "@softmax.cases(n=[100, 300])\n"
        "def case(n, make):\n"
        "    x, out = make.normal((7, n)), make.empty((7, n))\n"
        "    return silo.Case(args=(x, out, n, n), grid=(7,))\n"
    )
    from silo.commands.build_bundle import build_bundle

    build_bundle([program], tmp_path / "rows.silo", targets=["cpu"], tune="off")
    kernels = silo.load(tmp_path / "rows.silo", trust=True)
    for size in (70, 100, 128, 257, 300, 512):
        x = np.random.default_rng(size).random((7, size), np.float32)
        y = np.zeros_like(x)
        kernels.softmax[(7,)](x, y, size, size)
        np.testing.assert_allclose(y, np.exp(x) / np.exp(x).sum(1, keepdims=True), rtol=1e-5)
    x = np.zeros((7, 600), np.float32)
    with pytest.raises(NoVariantError, match="compiled for BLOCK_SIZE=512, and the call needs BLOCK_SIZE=1024"):
        kernels.softmax[(7,)](x, x.copy(), 600, 600)


def test_a_persistent_kernel_s_row_is_one_block():
    made = heuristics.space(
        "persistent_reduction",
        {"x": 1, "r": "n_cols"},
        names={"R0_BLOCK": "BLOCK_SIZE", "XBLOCK": ""},
        facts=KernelFacts(single_row=True, reduction_hint=ReductionHint.INNER),
    )
    kernel = silo.kernel(space=made)(softmax)
    x = np.random.default_rng(1).random((3, 100), np.float32)
    assert config_of(kernel, x, x.copy(), 100, 100).candidates == (Config.of(BLOCK_SIZE=128),)


@triton.jit
def shared_rows(x, out, m, n, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr, RSPLIT: tl.constexpr):
    """Each program takes its part of the rows, which are added up in memory: any RSPLIT is right."""
    part = tl.cdiv(n, RSPLIT)
    rows = tl.program_id(1) * XBLOCK + tl.arange(0, XBLOCK)
    first = tl.program_id(0) * part
    total = tl.zeros((XBLOCK, R0_BLOCK), tl.float32)
    for start in range(first, tl.minimum(first + part, n), R0_BLOCK):
        i = start + tl.arange(0, R0_BLOCK)
        mask = (rows[:, None] < m) & (i[None, :] < tl.minimum(first + part, n))
        total += tl.load(x + rows[:, None] * n + i[None, :], mask=mask, other=0.0)
    tl.atomic_add(out + rows, tl.sum(total, 1), mask=rows < m)


def test_programs_that_wait_for_one_another_are_launched_together():
    made = {}
    for constants in (None, {"launch_cooperative_grid": False}):
        space = heuristics.space("cooperative_reduction", {"x": "m", "r": "n"}, constants=constants)
        kernel = silo.kernel(space=space, grid=grids.cooperative("m"))(shared_rows)
        situation = config_of(kernel, X, out(), 2, 1 << 20)
        for target in ("cuda:sm_90", "hip:gfx942", "cpu:x86-64-v3"):
            found = situation.candidates_on(Target.parse(target), {})
            made[target, constants is None] = {config.as_dict().get("launch_cooperative_grid") for config in found}
            assert all(config.as_dict()["RSPLIT"] >= 1 for config in found)
    assert made["cuda:sm_90", True] == made["hip:gfx942", True] == {True}
    assert made["cpu:x86-64-v3", True] == {None}
    assert made["cuda:sm_90", False] == made["hip:gfx942", False] == {False}


def test_the_split_of_another_size_is_right_too(tmp_path):
    """A bundle has what its cases had: here one row that many share, and so many that nothing is shared."""
    program = tmp_path / "shared.py"
    text = inspect.getsource(shared_rows.fn).removeprefix("@triton.jit\n")
    program.write_text(
        "import silo, triton, triton.language as tl\n"
        "from silo.core import grids\n"
        "from silo import heuristics\n"
        "@silo.kernel(space=heuristics.space('cooperative_reduction', {'x': 'm', 'r': 'n'}),"
        " grid=grids.cooperative('m'))\n"
        f"@triton.jit\n{text}"
        "@shared_rows.cases(m=[1, 4096], n=[900])\n"
        "def case(m, n, make):\n"
        "    return silo.Case(args=(make.normal((m, n)), make.zeros(m), m, n))\n"
    )
    from silo.commands.build_bundle import build_bundle

    build_bundle([program], tmp_path / "shared.silo", targets=["cpu"], tune="off")
    kernels = silo.load(tmp_path / "shared.silo", trust=True)
    splits = set()
    for m, n in ((1, 900), (4096, 900), (8192, 33), (1, 1), (5, 9), (3, 40000), (17, 4097), (500, 2), (300, 7000)):
        x = np.random.default_rng(n).random((m, n), np.float32)
        y = np.zeros(m, np.float32)
        kernels.shared_rows(x, y, m, n)
        np.testing.assert_allclose(y, x.sum(1), rtol=1e-4)
        chosen = kernels.shared_rows.explain(x, y, m, n).partition("chosen: ")[2]
        splits.add(chosen.partition("RSPLIT=")[2].split(",")[0])
    assert len(splits) == min(2, os.cpu_count() or 1)
