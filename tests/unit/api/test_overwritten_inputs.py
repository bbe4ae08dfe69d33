"""``silo run``, ``check`` and ``tune`` fail a kernel that changes an array without a declaration."""

import pytest

import silo
from silo.bundle.documents import case_recipes
from silo.bundle.reader import open_bundle
from silo.commands.run_cases import run_cases
from silo.errors import TuneError
from silo.kernels.kernel import kernel_of

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402


def kernel(**options):
    @silo.kernel(space={"BLOCK": [256]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
    @triton.jit
    def twice(x, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + i, mask=i < n) * 2
        tl.store(out + i, v, mask=i < n)
        tl.store(x + i, v, mask=i < n)

    @twice.cases(n=[1000])
    def _(n, make):
        x, out = make.normal(n), make.empty(n)
        expected = {"out": lambda: x.host * 2, **({"x": lambda: x.host * 2} if options.get("expect") else {})}
        return silo.Case(args=(x, out, n), expected=expected, changes=options.get("changes", ()))

    return twice


@pytest.mark.parametrize("check", [False, True])
def test_an_undeclared_change_fails_the_case(check):
    (row,) = run_cases(kernel_of(kernel()), check=check)
    assert not row.ok
    assert row.message.startswith("x: the kernel changes it")
    assert "changes=[...]" in row.message


def test_an_undeclared_change_fails_each_config():
    with pytest.raises(TuneError, match="the kernel changes it"):
        silo.tune(kernel())


@pytest.mark.parametrize("options", [{"changes": ["x"]}, {"expect": True}])
def test_a_declared_change_passes(options):
    made = kernel(**options)
    (row,) = silo.run(made)
    assert row.ok, row.message
    assert silo.tune(made, remeasure=True)


@pytest.mark.parametrize(("options", "right"), [({}, False), ({"changes": ["x"]}, True), ({"expect": True}, True)])
def test_a_bundle_knows_what_its_cases_declare(options, right, tmp_path):
    path = tmp_path / "k.silo"
    silo.build(kernel(**options), output=path, targets=["cpu"], tune="off")
    with open_bundle(path) as bundle:
        (recipe,) = case_recipes(bundle, bundle.kernel_names[0])
    assert recipe.changes == (("x",) if "changes" in options else ())
    (row,) = silo.run(path)
    assert row.ok == right, row.message
    assert right or row.message.startswith("x: the kernel changes it")
