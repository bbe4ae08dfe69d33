"""Workers start for code that will be asked for and that the store does not hold, before the first of it is lowered."""

import contextlib
from types import SimpleNamespace

from fake_backend.compiler import FakeCompiler
from silo.building import compilation, packed_code
from silo.building.compilation import Compilation
from silo.compile.build_list import BuildVariant, Packing
from silo.core.config import Config
from silo.core.device import Target
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.variant import Variant

VARIANTS = [
    Variant("k", "f" * 64, Signature(()), Specialization(), Config.of(BLOCK=block), Target.parse(target))
    for target in ("fake:one", "fake:two")
    for block in range(4)
]


class Pool:
    most = 3

    def __init__(self):
        self.warmed = []

    def warm(self, count, compiler):
        self.warmed.append((count, compiler))


def made(monkeypatch, held=()):
    """A compilation over a store that holds some variants; what was looked up there."""
    compiler = FakeCompiler()
    monkeypatch.setattr(compilation, "select_compiler", lambda kind, target: compiler)
    keys = {variant.artifact_key(compiler.identity(variant.target)) for variant in held}
    asked = []

    def get(key):
        asked.append(key)
        return "held" if key in keys else None

    pool = Pool()
    session = SimpleNamespace(
        store=SimpleNamespace(
            artifacts=SimpleNamespace(
                get=get, here=lambda key: None, has_come=lambda key: False, expect=lambda keys: None
            )
        ),
        pool=pool,
    )
    return Compilation(session, SimpleNamespace(kind="fake", name="k")), asked, pool


def test_no_more_is_looked_up_than_there_are_workers(monkeypatch):
    one, asked, pool = made(monkeypatch)
    one.expect(VARIANTS[:4])
    assert pool.warmed == [(3, "fake")]
    assert len(asked) == 3


def test_variants_of_every_target_count(monkeypatch):
    one, _, pool = made(monkeypatch, held=VARIANTS[1:6])
    one.expect(VARIANTS)
    assert pool.warmed == [(1, "fake"), (2, "fake")]


def test_a_build_says_so_before_it_lowers_anything(monkeypatch):
    one, _, _ = made(monkeypatch)
    steps = []
    monkeypatch.setattr(Pool, "warm", lambda self, count, compiler: steps.append("warm"))

    def lower(source, variant):
        steps.append("lower")
        raise KeyboardInterrupt

    monkeypatch.setattr(compilation, "lowered", lower)
    plan = [BuildVariant(variant, (), ("case",), generic=False) for variant in VARIANTS[:2]]
    with contextlib.suppress(KeyboardInterrupt):
        packed_code.compile_plans(one.session, [(one.source, plan)], Packing(), lambda *_: None)
    assert steps == ["warm", "lower"]
