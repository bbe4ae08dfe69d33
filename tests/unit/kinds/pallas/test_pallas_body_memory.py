"""What a traced body takes besides its blocks; and a few launches of the many that are compared with the compiler's."""

import sys
from pathlib import Path

import pytest

from pallas_variants import source_of, variant_of

jax = pytest.importorskip("jax", reason="jax is not installed here; tests/pallas.txt is run where it is")

import pallas_kernels_for_tests as bodies  # noqa: E402  # needs jax
from silo import ArgSpec  # noqa: E402
from silo.errors import ResourceError  # noqa: E402
from silo.kinds.pallas.chips import CHIPS  # noqa: E402
from silo.kinds.pallas.memory_estimate import body_memory  # noqa: E402
from silo.kinds.pallas.pallas_blocks import blocked_launch  # noqa: E402
from silo.kinds.pallas.pallas_compiler import PallasCompiler, libtpu_version  # noqa: E402
from silo.kinds.pallas.pallas_job import held_settings, on_chip  # noqa: E402
from silo.kinds.pallas.pallas_program import make_program  # noqa: E402

MIB = 1 << 20
TALL = {"x": ((4096, 1024), "bf16"), "out": ((4096, 1024), "bf16")}
BLOCKS = [ArgSpec(block=(1024, 1024), dims=(0,)), ArgSpec(block=(1024, 1024), dims=(0,), role="out")]
HBM = [ArgSpec(), ArgSpec(role="out")]


def rows_of(body, args, arrays, grid=(4,), **said):
    source = source_of(body, args=args, **said)
    launch = blocked_launch(source, variant_of(source, arrays, grid))
    program = make_program(source, launch, {}, interpret=False, limit=None)
    with held_settings(), on_chip("v5e"):
        return body_memory(jax.jit(program.function).trace(*program.operands).jaxpr)


@pytest.mark.parametrize(
    ("body", "bytes_"),
    [
        (bodies.copy_body, 0),
        (bodies.chain_body, 0),
        (bodies.softmax_body, 4 * MIB),  # the values that are summed up and then divided
        (bodies.pipeline_body, 8 * MIB),  # two blocks of each array
        (bodies.scoped_body, 3 * MIB),  # the larger of two that are asked for in turn
    ],
)
def test_what_a_body_takes_besides(body, bytes_):
    in_hbm = body in (bodies.pipeline_body, bodies.scoped_body)
    found = rows_of(
        body, HBM if in_hbm else BLOCKS, TALL, (1,) if in_hbm else (4,), scheme="fori" if in_hbm else "default"
    )
    assert sum(one.total for one in found) == bytes_


def test_a_sum_of_products_stays_where_it_is_added_to():
    square = ((512, 512), "bf16")
    args = [ArgSpec(), ArgSpec(), ArgSpec(role="inout", dtype="fp32")]
    arrays = {"x": square, "y": square, "out": ((512, 512), "fp32")}
    (row,) = rows_of(bodies.product_body, args, arrays, (1,))
    assert row.total == 5 * MIB // 4


def test_a_body_that_asks_for_more_than_there_is_is_refused_by_the_estimate():
    source = source_of(bodies.pipeline_body, args=HBM, scheme="pipeline")
    arrays = {"x": (8192, 8192), "out": (8192, 8192)}
    with pytest.raises(
        ResourceError, match=r"(?s)128.00 MiB of VMEM.*memory 0 of the body's own: 1 x \(2, 1024, 8192\)"
    ):
        PallasCompiler().lower(source, variant_of(source, arrays, (1,)))


@pytest.mark.skipif(libtpu_version() is None, reason="libtpu is not installed: nothing to compare with")
@pytest.mark.parametrize("chip", ["v5e", "7x"])
def test_the_compiler_for_tpus_agrees(chip):
    sys.path.insert(0, str(Path(__file__).parents[4]))
    from bench.pallas import memory, memory_kernels

    launches = [memory_kernels.edge(share, CHIPS[chip].vmem_bytes) for share in (0.5, 0.9, 0.99, 1.01)]
    found = [memory.verdict(launch, CHIPS[chip]) for launch in launches]
    assert [one.fits for one in found] == [True, True, True, False]
    assert [one.compiler for one in found] == ["accepts"] * 3 + ["memory"]
