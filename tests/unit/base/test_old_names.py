"""Modules keep importing by the names that they had, for one release, with a warning that names the new one."""

import importlib
import importlib.util
import subprocess
import sys
import warnings

import pytest

from silo.old_names import GONE_WITH, OLD_MEMBERS, OLD_NAMES, new_name
from silo.version import __version__

# All that pages, examples and plug-ins import by name.
NAMES = [
    "silo.api.commands.build",
    "silo.artifacts.runs_on",
    "silo.backends.cpu.triton_plugin.driver",
    "silo.compile.identity",
    "silo.core",
    "silo.core.argument_facts",
    "silo.core.checks",
    "silo.core.code_facts",
    "silo.core.variant",
    "silo.core.config",
    "silo.core.consent",
    "silo.core.decisions",
    "silo.core.declaration",
    "silo.core.device",
    "silo.core.values",
    "silo.core.grids",
    "silo.core.launch_info",
    "silo.core.protocols",
    "silo.core.signature",
    "silo.core.space",
    "silo.core.specialization",
    "silo.core.device",
    "silo.core.values",
    "silo.core.variant",
    "silo.errors",
    "silo.frozen",
    "silo.integrations",
    "silo.integrations.helion",
    "silo.integrations.jax",
    "silo.integrations.triton_cache",
    "silo.integrations.triton_records.switch",
    "silo.sources.declaration",
    "silo.sources.declaration",
    "silo.sources.kernel_source",
    "silo.tune",
    "silo.tune.heuristics",
    "silo.tune.heuristics.space",
    "silo.tune.search.registry",
    "silo.tune.session",
    "silo.tune.faults",
    "silo.backends.cpu.page",
    "silo.sources.triton.ssa",
    "silo.api.tuning.explanation",
    "silo.api.commands.tune",
    "silo.api.agents.ray_agents",
]


def test_every_name_that_pages_and_plug_ins_import_is_there():
    for name in NAMES:
        new = new_name(name)
        if new is None:
            assert importlib.util.find_spec(name) is not None, name
        elif new:
            assert importlib.util.find_spec(new) is not None, (name, new)


@pytest.mark.parametrize("old", sorted(OLD_NAMES))
def test_an_old_name_warns_and_has_what_the_new_module_has(old):
    for known in [one for one in sys.modules if one == old or one.startswith(f"{old}.")]:
        del sys.modules[known]
    with warnings.catch_warnings(record=True) as caught:  # packages on the way may be old names too
        warnings.simplefilter("always")
        alias = importlib.import_module(old)
    assert (last := caught[-1]).category is DeprecationWarning
    assert str(last.message) == f"{old} is now {OLD_NAMES[old]}; the old name goes with Silo {GONE_WITH}"
    home = importlib.import_module(OLD_NAMES[old])
    assert alias is not home
    assert all(getattr(alias, name) is getattr(home, name) for name in vars(home) if not name.startswith("__"))
    assert dir(alias) == sorted(dir(home))


def test_a_member_that_was_renamed_has_its_old_name_in_the_old_module():
    for new, members in OLD_MEMBERS.items():
        home = importlib.import_module(new)
        (old,) = (old for old, now in OLD_NAMES.items() if now == new)
        alias = importlib.import_module(old)
        for name, now in members.items():
            assert getattr(alias, name) is getattr(home, now)


def test_submodules_and_names_import_as_they_did():
    code = (
        "from silo.tune import heuristics\n"
        "from silo.tune.heuristics import KernelFacts, space\n"
        "from silo.api.commands.build import build_bundle\n"
        "import silo.heuristics, silo.heuristics.heuristic_space, silo.commands.build_bundle\n"
        "assert KernelFacts is silo.heuristics.KernelFacts and heuristics.KernelFacts is KernelFacts\n"
        "assert space is silo.heuristics.space\n"
        "assert build_bundle is silo.commands.build_bundle.build_bundle"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_name_that_never_was_is_no_module():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'silo\.nothing'"):
        importlib.import_module("silo.nothing")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("silo.tune.nothing")


def test_the_old_names_go_when_they_are_said_to():
    assert __version__ < GONE_WITH, "the release that drops the old names: remove silo/old_names.py and its finder"
