import pytest

from silo.compile import toolchain
from silo.compile.toolchain import Toolchain, installed_plugins, select_compiler
from silo.core.decisions import Rejected
from silo.core.target import Target
from silo.errors import CompileError, TargetError

FAKE = "silo.backends.fake.compiler:FakeCompiler"


class Broken:
    name = "broken"

    def accepts(self, source_kind, target):
        raise RuntimeError("out of order")


class Exploding:
    def __init__(self):
        raise OSError("no licence")


PLUGINS = {
    "absent": "silo.no_such_module:Compiler",
    "broken": f"{__name__}:Broken",
    "exploding": f"{__name__}:Exploding",
    "fake": FAKE,
    "nameless": "silo.backends.fake.compiler:NoSuchClass",
}


def test_the_plugin_that_accepts_is_selected():
    chain = Toolchain(PLUGINS)
    compiler = chain.select("triton", Target.parse("fake:one"))
    assert compiler.name == "fake"
    assert chain.compiler("fake") is compiler


def test_a_target_nobody_builds_lists_every_reason():
    with pytest.raises(TargetError) as caught:
        Toolchain(PLUGINS).select("triton", Target.parse("tpu:v5e"))
    message = str(caught.value)
    assert "nothing here compiles a triton kernel for tpu:v5e" in message
    assert "- absent: the plug-in absent (silo.no_such_module:Compiler) does not load: ModuleNotFoundError" in message
    assert "- broken: the plug-in broken failed when asked: RuntimeError: out of order" in message
    assert "- exploding: " in message
    assert "OSError: no licence" in message
    assert "- fake: compiles for fake targets only, not for tpu" in message
    assert "AttributeError" in message


def test_a_broken_plugin_is_a_reason():
    loaded = Toolchain(PLUGINS).load("absent")
    assert isinstance(loaded, Rejected)
    with pytest.raises(CompileError, match="does not load"):
        Toolchain(PLUGINS).compiler("absent")


def test_an_unknown_plugin_lists_the_installed():
    with pytest.raises(CompileError, match=r"no compiler plug-in is called nobody; installed: absent, .*fake"):
        Toolchain(PLUGINS).compiler("nobody")
    with pytest.raises(CompileError, match="installed: none"):
        Toolchain({}).compiler("nobody")


def test_no_plugin_at_all_says_so():
    with pytest.raises(TargetError, match=r"no compiler plug-in is installed \(entry-point group silo.compilers\)"):
        Toolchain({}).select("triton", Target.parse("fake:one"))


def test_select_compiler_uses_the_installed_ones(monkeypatch):
    monkeypatch.setattr(toolchain, "installed_plugins", lambda: {"fake": FAKE})
    toolchain._installed.cache_clear()
    try:
        assert select_compiler("triton", Target.parse("fake:one")).name == "fake"
    finally:
        toolchain._installed.cache_clear()


PROJECT = """
[project]
name = "{name}"
[project.entry-points."silo.compilers"]
cpu = "silo.backends.cpu.compiler:CpuCompiler"
evil = "stranger:Compiler"
"""


@pytest.mark.parametrize(
    ("folder", "name", "believed"),
    [
        ("src/silo", "kernel-silo", True),
        ("lib/silo", "kernel-silo", False),  # pip install --target, in a project that calls itself so
        ("src/silo", "another", False),
    ],
)
def test_a_project_file_above_is_believed_where_it_is_silos_own_and_of_silos_own_code_alone(
    tmp_path, monkeypatch, folder, name, believed
):
    (tmp_path / "pyproject.toml").write_text(PROJECT.format(name=name))
    monkeypatch.setattr(toolchain.silo, "__file__", str(tmp_path / folder / "__init__.py"))
    found = toolchain._declared_in_checkout()
    assert found == ({"cpu": "silo.backends.cpu.compiler:CpuCompiler"} if believed else {})


def test_entry_points_are_read():
    plugins = installed_plugins()
    assert all(":" in place for place in plugins.values())
    assert list(plugins) == sorted(plugins)
