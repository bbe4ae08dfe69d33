"""Source plug-ins: which there are, which reads an object, what ``silo.NAME`` is."""
# pyright: reportAbstractUsage=false, reportAssignmentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import types
from importlib import metadata

import pytest

import silo
from silo.core import plugins
from silo.core.decisions import Accepted, Rejected
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.space import Space
from silo.core.specialization import Specialization
from silo.errors import SourceError
from silo.sources import kinds
from silo.sources.declaration import Declaration, plain_callable
from silo.sources.kernel_source import KernelSource
from silo.sources.kinds import kind_named, kind_reading


class ToySource(KernelSource):
    """A kernel of a kind that Silo does not know: all that such a class has to say."""

    kind, name, location, fingerprint = "toy", "double", "toy.py:1", "f" * 64
    signature = Signature((Parameter("x"), Parameter("WIDE", ParameterKind.CONSTEXPR)))

    def specialize(self, arguments):
        return self.signature, Specialization()

    def constant(self, value):
        return value


class Toy:
    """The plug-in."""

    advice = "call silo.toy(...)"

    def reads(self, value):
        return Accepted() if isinstance(value, ToyText) else Rejected("not a text of toys")

    def read(self, value):
        space = Space.of({"WIDE": [1, 2]})
        return Declaration(source=ToySource(), space=space, grid=(4,), refusals=value.refusals)

    def wrap(self, source, launcher, members):
        return plain_callable(source, launcher, members)

    def define(self, text, *, refusals=()):
        return ToyText(text, refusals)


class ToyText:
    def __init__(self, text, refusals=()):
        self.text, self.refusals = text, refusals


@pytest.fixture
def toy(monkeypatch):
    """The plug-in is installed; another one is, and does not load."""
    points = [
        types.SimpleNamespace(name="toy", value=f"{__name__}:Toy"),
        types.SimpleNamespace(name="broken", value=f"{__name__}:Missing"),
    ]
    original = metadata.entry_points

    def entry_points(**wanted):
        return points if wanted == {"group": "silo.sources"} else original(**wanted)

    caches = (plugins.installed_places, kinds._loaded)
    for one in caches:
        one.cache_clear()
    monkeypatch.setattr(metadata, "entry_points", entry_points)
    yield
    for one in caches:
        one.cache_clear()
    vars(silo).pop("toy", None)


def test_each_kind_reads_its_own():
    triton = pytest.importorskip("triton")

    def add(x):
        pass

    assert kind_reading(triton.jit(add)) is kind_named("triton")
    with pytest.raises(SourceError, match=r"(?s)add is not a kernel that Silo reads:\n.*it with @triton.jit"):
        silo.kernel(add)


def test_a_kind_of_another_distribution_makes_kernels(toy):
    made = silo.toy("double it")
    assert (made.name, made.kernel.source.kind) == ("double", "toy")
    assert made.kernel.config_names == ("WIDE",)
    assert [str(axis) for axis in made.kernel.grid] == ["4"]
    assert repr(made).startswith("<silo kernel ")
    again = silo.kernel(ToyText("double it"), space={"WIDE": [3]}, grid=(5,))
    assert [config.as_dict() for config in again.kernel.space.configs()] == [{"WIDE": 3}]
    assert [str(axis) for axis in again.kernel.grid] == ["5"], "what silo.kernel is told comes first"


def test_what_a_kind_refuses_of_its_own_space_is_no_matter_with_another(toy):
    with pytest.raises(SourceError, match=r"double \(toy.py:1\): it runs a hook"):
        silo.toy("double it", refusals=("it runs a hook",))
    assert silo.kernel(ToyText("", ("it runs a hook",)), space={"WIDE": [1]}).name == "double"


def test_a_plug_in_that_does_not_load_is_a_reason(toy):
    assert [name for name, _ in kinds.broken_kinds()] == ["broken"]
    with pytest.raises(SourceError, match=r"(?s)the source plug-in broken .* does not load: Attr.*toy: not a"):
        silo.kernel(3)
    with pytest.raises(AttributeError, match="no attribute 'broken'"):
        _ = silo.broken
    with pytest.raises(AttributeError, match="no attribute 'triton'"):
        _ = silo.triton


def test_a_plug_in_that_fails_when_asked_is_a_reason(toy, monkeypatch):
    monkeypatch.setattr(Toy, "reads", lambda self, value: value.no_such_member)
    with pytest.raises(SourceError, match=r"toy: the source plug-in toy failed when asked: AttributeError"):
        silo.kernel(3)


def test_a_folder_that_names_no_kernel_says_how_each_is_made(toy, tmp_path):
    from silo.kernels.collection import collect_kernels

    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(SourceError, match=r"put @silo.kernel\(...\) on .*, or call silo.toy\(...\)"):
        collect_kernels([tmp_path / "empty.py"])
