"""``silo export``: the written files, which compile without a warning and are the same each time."""

import json
import re
import subprocess
import sys
from functools import partial

import pytest

import warm_python
from bundle_samples import put
from core_native import compiler
from export_samples import SHAPED_GRID, Maker, add_kernel, add_parameters, parameter
from silo.bundle.reader import open_bundle
from silo.commands import export_bundle as exporting
from silo.commands.export_bundle import ExportOptions, check_export
from silo.core.config import Config
from silo.core.expressions import Argument, Const
from silo.core.literal_data import Formula
from silo.core.recipes import ArrayRecipe, CaseRecipe, ScalarRecipe
from silo.core.signature import Parameter, ParameterKind
from silo.core.specialization import Fact, Specialization
from silo.core.values import DTYPES, dtype
from silo.errors import BundleError, SourceError, StoreError

# The code of these bundles is invented, so the ledger does not vouch for it.
export_cpp = partial(exporting.export_cpp, trust=True)
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
NAME = 'x */ int y; /* ??/ "\\'
HOSTILE = f"{NAME}\n"


@pytest.fixture
def maker():
    return Maker()


def everything(maker):
    """Every kind of parameter, every element type, and names that are not valid in any programming language."""
    rest = add_parameters()[2:]
    shaped = maker.variant("shaped", (parameter("x", "r float16"), parameter("grid", "w int8"), *rest))
    described = [
        maker.variant(
            "described",
            (parameter("x", "d bfloat16"), parameter("n", "i int32"), parameter("BLOCK", "c")),
            Specialization(constants=(("x", (16, side)),)),
            config=Config.of(BLOCK=side),
        )
        for side in (16, 32)
    ]
    constants = [
        maker.variant(
            NAME,
            (*add_parameters(), parameter("int", "c"), parameter("scale", "f"), parameter("b", "b")),
            Specialization(constants=(("int", value),)),
        )
        for value in ("relu", HOSTILE, "", None, dtype("float8_e5m2"), 0.5, -7, True)
    ]
    optional = [
        maker.variant("optional", add_parameters()),
        maker.variant(
            "optional",
            (Parameter("x", ParameterKind.POINTER), *add_parameters()[1:]),
            Specialization(facts=(("x", Fact.NONE),)),
        ),
    ]
    return [
        add_kernel(maker, elements=("float32", "bfloat16", "bool")),
        *(
            maker.kernel(f"of.{one.name}", [maker.variant(f"of.{one.name}", add_parameters(one.name))])
            for one in DTYPES
        ),
        maker.kernel("shaped", [shaped], grid=SHAPED_GRID),
        maker.kernel("described", described),
        maker.kernel(NAME, constants, defaults={"int": "relu", "scale": 0.1, "b": True}),
        maker.kernel("optional", optional, defaults={"x": None, "out": None}),
        maker.kernel("gridless", [maker.variant("gridless", add_parameters())], grid=None),
    ]


def written(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_text_compiles_without_a_warning(maker, tmp_path):
    path = maker.write(tmp_path / "k.silo", everything(maker))
    made = export_cpp(path, tmp_path / "out", ExportOptions(namespace="acme::kernels"))
    assert made.namespace == "acme::kernels"
    assert {"acme_kernels_add_fp32", "acme_kernels_described", "acme_kernels_gridless"} <= set(made.functions)
    cc, cxx = compiler("gcc"), compiler("g++")
    subprocess.run([cc, "-std=c11", *WARNINGS, "-c", "acme_kernels.c"], cwd=made.folder, check=True)
    (tmp_path / "use.c").write_text('#include "acme_kernels.h"\nint main(void) { return 0; }\n')
    includes = [f"-I{made.folder}", "-fsyntax-only", *WARNINGS]
    subprocess.run([cc, "-std=c99", "-Wpedantic", *includes, "use.c"], cwd=tmp_path, check=True)
    (tmp_path / "use.cpp").write_text(
        '#include "acme_kernels.hpp"\n#include "tests/selftest.cpp"\n'
        "void use(float *x, silo::float16 *h, std::int8_t *c, silo::bfloat16 *b) {\n"
        "    namespace k = acme::kernels;\n"
        "    const std::int64_t shape[] = {4, 16}, block[] = {16, 16};\n"
        "    silo_error error;\n"
        "    k::add(silo::cpu(), x, x, 3);\n"
        "    k::add(silo::cuda(nullptr, 1), b, b, 3);\n"
        "    k::shaped(silo::cpu(), silo::array(h, shape), c, 3);\n"
        "    k::described(silo::rocm(), {b, shape, nullptr, block, SILO_ARGUMENT_PAD_NAN}, 3);\n"
        "    k::optional(silo::cpu(), nullptr, x, 3);\n"
        "    k::gridless(silo::cpu(), {4, 1, 1}, x, x, 3);\n"
        "    k::warmup::gridless(silo::cpu(), {4}, x, x, 3);\n"
        "    if (k::add(error, silo::cpu(), x, x, 3) != 0)\n"
        "        k::close();\n"
        "}\n"
    )
    subprocess.run([cxx, "-std=c++17", *includes, "use.cpp"], cwd=tmp_path, check=True)
    subprocess.run([cxx, "-std=c++17", *includes, "example.cpp"], cwd=made.folder, check=True)


def test_const_says_what_is_read_and_defaults_are_kept(maker, tmp_path):
    path = maker.write(tmp_path / "k.silo", everything(maker))
    export_cpp(path, tmp_path / "out")
    text = " ".join((tmp_path / "out" / "k.hpp").read_text().split())
    assert "inline void add(const silo::queue &queue, const float *x, float *out, std::int64_t n)" in text
    assert "const silo::array<const silo::float16> &x, std::int8_t *grid_2, std::int64_t n)" in text
    assert "int_ = x_int_int_y_n::relu" not in text
    assert re.search(r"::relu, double scale = 0x1\.999999999999ap-4, bool b = true\)", text)
    assert "Code for cpu:x86-64-v2, cuda:sm_80." in text
    assert "x: float32, for example [100]; read." in text


def test_the_same_bundle_gives_the_same_bytes_and_files_stay(maker, tmp_path):
    path = maker.write(tmp_path / "k.silo", [add_kernel(maker)])
    one = export_cpp(path, tmp_path / "one")
    assert len(one.written) == one.files
    again = export_cpp(path, tmp_path / "one")
    assert (again.written, again.removed) == ((), ())
    export_cpp(path, tmp_path / "other")
    assert written(tmp_path / "one") == written(tmp_path / "other")
    assert not check_export(path, tmp_path / "one")
    # Another bundle: only files whose content depends on the bundle are written.
    path = maker.write(tmp_path / "k.silo", [add_kernel(maker, elements=("float32", "int32"))])
    found = check_export(path, tmp_path / "one")
    assert {"k.silo", "k.h", "k.hpp", "k.c"} <= set(found.stale)
    assert not any(name.startswith("silo/") for name in found.stale)
    assert set(export_cpp(path, tmp_path / "one").written) == set(found.stale)


def test_options_cut_and_are_remembered(maker, tmp_path):
    path = maker.write(tmp_path / "k.silo", [add_kernel(maker), add_kernel(maker, "sub"), add_kernel(maker, "Z.z")])
    options = ExportOptions(kernels=("add", "Z.z"), targets=("cuda",), namespace="n", tests=False)
    made = export_cpp(path, tmp_path / "out", options)
    assert made.functions == ("n_Z_z", "n_add")
    with open_bundle(tmp_path / "out" / "n.silo") as cut:
        assert cut.kernel_names == ("Z.z", "add")
        assert {entry.codec for entry in cut.blobs} == {"raw"}
        assert {entry.kind for entry in cut.blobs} == {"cubin"}
        assert not cut.header.zstd_manifest
    assert not (tmp_path / "out" / "tests").exists()
    assert not check_export(path, tmp_path / "out")
    with pytest.raises(BundleError, match=r"there is no kernel nope; the bundle has Z.z, add, sub"):
        export_cpp(path, tmp_path / "no", ExportOptions(kernels=("nope",)))
    with pytest.raises(BundleError, match=r"kernel Z.z has no code for hip; it has code for cpu:x86-64-v2, cuda:sm_80"):
        export_cpp(path, tmp_path / "no", ExportOptions(targets=("hip",)))
    for wrong in ("a b", "a::", "class", "silo", "silo_x", "9"):
        with pytest.raises(BundleError, match="is not a namespace for an export"):
            export_cpp(path, tmp_path / "no", ExportOptions(namespace=wrong))
    assert not (tmp_path / "no").exists()


def test_code_of_the_cpu_can_be_compiled_in(maker, tmp_path):
    path = maker.write(tmp_path / "k.silo", [add_kernel(maker)])
    export_cpp(path, tmp_path / "out", ExportOptions(cpu_source=True))
    (source,) = (tmp_path / "out" / "cpu" / "x86-64-v2").iterdir()
    text = source.read_text()
    assert re.search(r"#define entry_0 k_entry_0_[0-9a-f]{12}\n", text)
    assert "-march=x86-64-v2;" in (tmp_path / "out" / "CMakeLists.txt").read_text()
    subprocess.run([compiler("gcc"), *WARNINGS, "-c", "k.c"], cwd=tmp_path / "out", check=True)
    bare = maker.variant("bare", add_parameters(), kind="so")
    artifact = bare.artifact
    without = type(bare)(
        type(artifact)(artifact.variant, artifact.launch, artifact.blob, (), artifact.compiler, artifact.job), ""
    )
    path = maker.write(tmp_path / "b.silo", [maker.kernel("bare", [without])])
    with pytest.raises(BundleError, match="kernel bare has code for cpu:x86-64-v2 without the C"):
        export_cpp(path, tmp_path / "no", ExportOptions(cpu_source=True))


def test_what_was_changed_by_hand_is_said_and_kept(maker, tmp_path):
    path = maker.write(tmp_path / "k.silo", [add_kernel(maker)])
    folder = tmp_path / "out"
    export_cpp(path, folder)
    (folder / "example.cpp").write_text("// mine\n")
    assert check_export(path, folder).lines == ("example.cpp was changed by hand",)
    with pytest.raises(StoreError, match=r"example.cpp was changed by hand"):
        export_cpp(path, folder)
    with pytest.raises(BundleError, match="is not an export"):
        check_export(path, tmp_path)


def silo(folder, *words):
    command = [sys.executable, "-m", "silo", "export", "--trust", *words]
    return warm_python.run(command, cwd=folder, capture_output=True, text=True)


def test_the_command(maker, tmp_path):
    maker.write(tmp_path / "k.silo", [add_kernel(maker), add_kernel(maker, "sub")])
    done = silo(tmp_path, "k.silo", "--cpp", "out", "--kernels", "add", "--targets", "cpu", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["functions"] == ["k_add"]
    assert silo(tmp_path, "k.silo", "--check", "out").stdout == "out is current\n"
    (tmp_path / "out" / "k.c").write_text("")
    done = silo(tmp_path, "k.silo", "--check", "out")
    assert (done.returncode, done.stdout) == (1, "k.c was changed by hand\n")
    assert silo(tmp_path, "k.silo").returncode == 2
    assert silo(tmp_path, "k.silo", "--check", "out", "--no-tests").returncode == 2
    assert silo(tmp_path, "nope.silo", "--cpp", "other").returncode == 3


def test_cases_that_need_python_are_left_out_with_the_reason(maker, tmp_path):
    kernel = add_kernel(maker)

    def case(label, n=4, x=None, config=()):
        arguments = (
            ("x", x or ArrayRecipe.of("zeros", (4,))),
            ("out", ArrayRecipe.of("empty", (4,))),
            ("n", ScalarRecipe(n)),
        )
        return CaseRecipe(label, arguments, config=config)

    computed = ArrayRecipe.of("own", (1 << 40,), "int8", own=Formula(Argument("i0")))
    cases = [
        case("asks", config=(("num_warps", 8),)),
        case("huge", n=1 << 70),
        case("computed", x=ArrayRecipe.of("own", (1 << 30,), "float32", own=Formula(Const(1)))),
        case("typed", x=computed),
    ]
    kernel = maker.kernel("add", kernel.variants, cases=cases)
    export_cpp(maker.write(tmp_path / "k.silo", [kernel]), tmp_path / "out")
    text = (tmp_path / "out" / "tests" / "selftest.cpp").read_text()
    for label, reason in (
        ("asks", "it asks for compile options \\(num_warps\\), which typed functions do not take"),
        ("huge", "no function takes arguments of its types"),
        ("computed", "the values of x are computed, and too many to be written down"),
        ("typed", "no function takes arguments of its types"),
    ):
        assert re.search(f'\\{{"add", "{label}", nullptr, "{reason}"\\}}', text)


def test_text_that_is_none_is_an_error(maker, tmp_path):
    wrong = maker.variant("add", add_parameters())
    (sidecar,) = wrong.artifact.sidecars
    blob = put(maker.blobs, "c", b"\xff\xfe")
    artifact = wrong.artifact
    artifact = type(artifact)(
        artifact.variant, artifact.launch, artifact.blob, (blob,), artifact.compiler, artifact.job
    )
    assert sidecar != blob
    path = maker.write(tmp_path / "k.silo", [maker.kernel("add", [type(wrong)(artifact, "")])])
    with pytest.raises(SourceError, match="is not text"):
        export_cpp(path, tmp_path / "out", ExportOptions(cpu_source=True))
