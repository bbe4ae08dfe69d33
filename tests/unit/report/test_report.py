"""Reports: the figures by hand-made trials, charts as well-formed SVG, pages that need nothing but themselves."""
# pyright: reportGeneralTypeIssues=false

import base64
import dataclasses
import hashlib
import re
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from fake_backend.measure import fake_study
from silo.core.config import Config
from silo.core.recipes import Work
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.values import dtype
from silo.errors import PackageError
from silo.report import kernel_pages as page
from silo.report.charts import LinearScale, LogScale, RooflinePoint, effect_chart, progress_chart, roofline_chart
from silo.report.kernel_pages import ConfigCode, OtherSizes, index_page, kernel_page, study_report
from silo.report.least_time import Ceilings, dot_dtype, speed_of_light
from silo.report.ranking import best_so_far, compare, effects, failure_groups, front, parameter_names
from silo.tuner.generalization import Sample, generalize
from silo.tuner.ledger import KeptStudy
from silo.tuner.spilling import SpillingConfig
from silo.tuner.trial import Status
from silo.tuner.winner import choose_winner

STUDY = fake_study()


def good(time_ns, **config):
    return STUDY.trial(Config.of(config), Status.OK, [time_ns - 1, time_ns, time_ns + 1] * 3)


def bad(status=Status.RUN, message="out of resources", **config):
    return STUDY.failed(Config.of(config), status, message)


TRIALS = (
    good(400, BLOCK=64, MODE="a"),
    bad(BLOCK=256, MODE="a"),
    good(200, BLOCK=128, MODE="a"),
    good(800, BLOCK=64, MODE="b"),
    bad(Status.WRONG, "out: 3 differ\nat 5", BLOCK=256, MODE="b"),
    good(100, BLOCK=128, MODE="b", num_warps=8),
)


def with_registers(time_ns, registers, block):
    resources = (("registers", registers),) if registers is not None else ()
    return STUDY.trial(Config.of(BLOCK=block), Status.OK, [time_ns] * 9, resources=resources)


def test_the_front_of_time_and_registers_has_no_beaten_config():
    trials = [
        with_registers(100, 128, 1),
        with_registers(110, 64, 2),
        with_registers(120, 64, 3),  # slower, and no fewer registers
        with_registers(200, 40, 4),
        with_registers(50, None, 5),  # unknown
        bad(BLOCK=6),
    ]
    points = front(trials, "registers")
    assert [(point.config.as_dict()["BLOCK"], point.time_ns, point.amount) for point in points] == [
        (1, 100, 128),
        (2, 110, 64),
        (4, 200, 40),
    ]
    assert front(trials, "shared_bytes") == ()
    text = kernel_page("k", "k.py", [study_report(KeptStudy(STUDY, tuple(trials)), None)])
    assert "Time and registers of a thread" in text
    one = kernel_page("k", "k.py", [study_report(KeptStudy(STUDY, tuple(trials[:1])), None)])
    assert "Time and registers" not in one


def test_what_measured_sizes_predict_for_others_is_on_the_page_as_a_prediction():
    small, large = (Config.of(BLOCK=block) for block in (64, 128))
    samples = [
        Sample.of((1 << power,), best, {config: 100 if config is best else 110 for config in (small, large)})
        for power, best in zip(range(4, 9), (small, small, small, large, large), strict=True)
    ]
    study = dataclasses.replace(STUDY, bucket_names=("n",), bucket=(16,))
    others = OtherSizes.of(study, generalize(["n"], samples, small))
    assert [size for size, _, _ in others.rows] == ["n=128", "n=16", "n=256", "n=32", "n=64"]
    assert all(re.fullmatch(r"\d+\.\d %", loss) for _, _, loss in others.rows)
    kept = study_report(KeptStudy(STUDY, TRIALS), None)
    text = kernel_page("k", "k.py", [kept], [others])
    assert "Predictions, not measurements" in text
    assert "n=128" in text
    assert "Sizes that were not measured" not in kernel_page("k", "k.py", [kept])


def test_refinements_and_spilling_configs_are_on_the_page():
    first = STUDY.trial(
        Config.of(R0_BLOCK=64), Status.OK, [5] * 9, message="refined: halved", resources=(("spills", 20),)
    )
    aside = (SpillingConfig(Config.of(R0_BLOCK=999), 77),)
    text = kernel_page("reduce", "k.py", [study_report(KeptStudy(STUDY, (first,), aside=aside), None)])
    for part in ("refined: halved", "<td>20</td>", "Set aside", "R0_BLOCK=999: 77 values"):
        assert part in text
    text = kernel_page("reduce", "k.py", [study_report(KeptStudy(STUDY, TRIALS), None)])
    assert "Set aside" not in text
    assert ">spills<" not in text


def test_the_best_so_far():
    assert best_so_far(TRIALS) == [400, 400, 200, 200, 200, 100]
    assert best_so_far([TRIALS[1]]) == [None]


def test_what_parameters_explain():
    assert parameter_names(TRIALS) == ("BLOCK", "MODE", "num_warps")
    found = {effect.name: effect for effect in effects(TRIALS)}
    block = found["BLOCK"]
    assert [(level.text, level.times_ns, level.failed) for level in block.levels] == [
        ("64", (400, 800), 0),
        ("128", (100, 200), 0),
        ("256", (), 2),
    ]
    # Logs to base 2, less a constant: 64 -> 2, 3; 128 -> 0, 1. Between groups 4 * 1, in all 4 * 1.25.
    assert block.share == pytest.approx(4 / 5)
    assert found["MODE"].share == pytest.approx(0)
    assert [level.text for level in found["num_warps"].levels] == ["8", "(none)"]
    assert effects(TRIALS)[0].name == "BLOCK"
    assert effects([TRIALS[0]]) == ()
    assert effects([good(5, A=1), good(5, A=2)])[0].share == 0


def test_numbers_come_before_texts_and_by_size():
    trials = [good(100 + place, A=value) for place, value in enumerate((10, 9, "x", 1.5, True, None))]
    (effect,) = effects(trials)
    assert [level.text for level in effect.levels] == ["1.5", "9", "10", "None", "True", "x"]


def test_failures_go_together_by_kind_and_first_line():
    again = bad(Status.WRONG, "out: 3 differ\nat 7", BLOCK=512)
    groups = [(g.kind, g.headline, g.detail, len(g.configs)) for g in failure_groups([*TRIALS, again])]
    assert groups == [
        ("wrong", "out: 3 differ", "out: 3 differ\nat 5", 2),
        ("run", "out of resources", "out of resources", 1),
    ]


def test_the_default_beside_the_winner():
    winner = choose_winner(TRIALS)
    default = Config.of(BLOCK=64, MODE="a")
    found = compare(TRIALS, winner, default, "seed")
    assert (found.ratio, found.default_ns) == (4.0, 400)
    assert 399 / 101 <= found.low <= 4.0 <= found.high <= 401 / 99
    assert found == compare(TRIALS, winner, default, "seed")
    assert compare(TRIALS, winner, Config.of(BLOCK=256, MODE="a"), "seed") is None  # it failed
    # Where both were measured side by side, only that counts.
    finals = [TRIALS[0].remeasured([300] * 9), TRIALS[-1].remeasured([100] * 9)]
    assert compare([*TRIALS, *finals], winner, default, "seed").ratio == 3.0
    assert compare([*TRIALS, finals[1]], winner, default, "seed").ratio == 4.0


CEILINGS = Ceilings(((1 << 10, 4 * 10**9), (1 << 20, 10**9)), (("float16", 2 * 10**12), ("float32", 10**12)))


def test_the_speed_of_light_is_the_longer_of_both():
    light = speed_of_light(Work(bytes=1 << 21, flops=10**6), CEILINGS, "float32")
    assert (light.bound, light.least_ns, light.dot_ceiling) == ("memory", float(1 << 21), 10**12)
    light = speed_of_light(Work(bytes=1 << 21, flops=10**10), CEILINGS, "float32")
    assert (light.bound, light.least_ns, light.reached(20_000_000)) == ("arithmetic", 10_000_000.0, 0.5)
    assert speed_of_light(Work(bytes=1000), CEILINGS, "float32").least_ns == 250.0  # it fits where the small copy did
    assert speed_of_light(Work(flops=10), CEILINGS, "float64") is None
    assert speed_of_light(Work(), CEILINGS, "float32") is None
    assert CEILINGS.copy_rate(1 << 15) == (1 << 10, 4 * 10**9)
    assert Ceilings((), ()).copy_rate(5) is None


def test_ceilings_are_kept_strictly():
    assert Ceilings.from_json(CEILINGS.to_json()) == CEILINGS
    for change in (
        {"schema": "ceilings/2"},
        {"copies": [[1]]},
        {"copies": [[1, -2]]},
        {"dots": {"a": 1.5}},
        {"more": 1},
    ):
        with pytest.raises(ValueError, match=r"not (.* of )?(the \w+ of )?measured ceilings: "):
            Ceilings.from_json({**CEILINGS.to_json(), **change})


@pytest.mark.parametrize(
    ("names", "dot"),
    [
        (("float32", "float32"), "float32"),
        (("float32", "bfloat16"), "float16"),
        (("float16", "int32"), "float16"),
        (("float8_e4m3fn",), "float8_e4m3fn"),
        (("float64",), "float64"),
        (("int64",), "float32"),
        ((), "float32"),
    ],
)
def test_which_products_a_kernel_is_compared_with(names, dot):
    parameters = [Parameter(f"p{i}", ParameterKind.POINTER, dtype(name)) for i, name in enumerate(names)]
    assert dot_dtype(Signature(tuple(parameters))) == dot


@pytest.mark.parametrize("kind", [LinearScale, LogScale])
@pytest.mark.parametrize(("low", "high"), [(1, 10), (3, 3.5), (1, 1_000_000), (0.7, 12345), (5, 5)])
def test_ticks_lie_on_the_axis(kind, low, high):
    scale = kind(low, high, 0, 100)
    ticks = scale.ticks()
    assert ticks == sorted(set(ticks))
    assert all(low <= tick <= high for tick in ticks)
    assert len(ticks) <= 14
    if high > low:
        assert len(ticks) >= 2
        assert (scale.place(low), scale.place(high)) == (0, 100)


def parsed(svg):
    return ET.fromstring(svg)  # as strict as XML


def test_the_chart_of_the_search():
    svg = parsed(progress_chart(TRIALS, default_ns=400, least_ns=50.0))
    kinds = [element.get("class") for element in svg.iter()]
    assert (kinds.count("trial"), kinds.count("failed"), kinds.count("best")) == (4, 2, 1)
    texts = [element.text for element in svg.iter("text")]
    assert {"default", "speed of light", "best 100 ns", "failed"} <= set(texts)
    titles = [element.text for element in svg.iter("title")]
    assert "2. BLOCK=256, MODE=a: run: out of resources" in titles
    lines = {element.get("class"): float(element.get("y1")) for element in svg.iter("line")}
    assert lines["light"] > lines["default"]  # lower is faster
    only = parsed(progress_chart([TRIALS[1]]))
    assert [element.get("class") for element in only.iter("path")] == ["failed"]
    parsed(progress_chart([]))


def test_many_trials_are_one_path():
    many = [good(1000 + n, A=n) for n in range(3001)]
    svg = parsed(progress_chart(many))
    assert len(list(svg.iter("circle"))) == 0
    points = next(element for element in svg.iter("path") if element.get("class") == "points")
    assert points.get("d").count("M") == 3001


def test_the_chart_of_a_parameter():
    svg = parsed(effect_chart(effects(TRIALS)[0]))
    kinds = [element.get("class") for element in svg.iter()]
    assert (kinds.count("trial"), kinds.count("winner"), kinds.count("median")) == (4, 2, 2)
    assert "2\u2009\u2717" in [element.text for element in svg.iter("text")]
    wide = effects([good(100 + n, A=f"value number {n}") for n in range(30)])[0]
    parsed(effect_chart(wide))


class Page(HTMLParser):
    """Rows of the tables of trials, what is loaded, and whether every element is closed."""

    VOID = frozenset(("meta", "br"))

    def __init__(self, text):
        super().__init__()
        self.open, self.loads, self.rows, self.scripts = [], [], 0, 0
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.loads += [value for name, value in attrs if name in ("src", "href") and not value.startswith("#")]
        self.scripts += tag == "script"
        self.rows += tag == "tr" and "div" in self.open and dict(attrs) is not None
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def kept(trials=TRIALS, **more):
    return KeptStudy(STUDY, tuple(trials), **{"cases": ("n=5",), "default": TRIALS[0].config, **more})


def test_a_page_needs_nothing_but_itself():
    text = kernel_page("conv", "conv.py", [study_report(kept(work=Work(bytes=400)), CEILINGS)])
    found = Page(text)
    assert found.loads == []
    assert found.scripts == 1
    assert found.rows == 1 + 1 + 1 + len(TRIALS)  # heads, the summary, every trial
    assert not re.search(r"https?://|@import|url\(", text)
    for part in ("4.00&times;", "BLOCK=128, MODE=b, num_warps=8", "n=5", "100 %", "1 run, 1 wrong", "out: 3 differ"):
        assert part in text
    assert "explains 80 % of the spread" in text


def test_a_browser_runs_the_pages_own_script_and_fetches_nothing():
    text = kernel_page("reduce", "k.py", [study_report(kept(), None)])
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', text)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_texts_of_users_stay_texts():
    evil = '<script>alert("x")</script>'
    trials = [good(100, MODE=evil), bad(message=evil, MODE="b")]
    text = kernel_page(evil, evil, [study_report(kept(trials, cases=(evil,), default=None), None)])
    assert Page(text).scripts == 1
    assert evil not in text
    assert text.count("&lt;script&gt;") > 5


def test_pages_of_studies_that_lack_something():
    nothing = study_report(kept([TRIALS[1]]), None)
    text = kernel_page(
        "conv", "k.silo", [nothing, study_report(kept(default=None, cases=(), work=Work(flops=5)), None)]
    )
    assert "no winner" in text
    assert "failed: run" not in text.partition("study-2")[0].partition("no winner")[0]
    assert "config tried first" in text
    assert "run <code>silo report --ceilings</code>" in text
    assert "the default is the winner" in kernel_page("c", "c", [study_report(kept(default=TRIALS[-1].config), None)])
    missing = kernel_page("c", "c", [study_report(kept(default=Config.of(BLOCK=1)), None)])
    assert "not measured" in missing
    assert "failed: run" in kernel_page("c", "c", [study_report(kept(default=TRIALS[1].config), None)])


def test_pages_stay_small():
    trials = [good(1000 + n % 97, BLOCK=n, num_warps=4) for n in range(2000)]
    text = kernel_page("conv", "conv.py", [study_report(kept(trials), None)])
    assert len(text) < 1_500_000


def test_without_jinja(monkeypatch):
    page._template.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(PackageError, match=r"kernel-silo\[report\]"):
        kernel_page("conv", "conv.py", [])


def places(svg, kind):
    return [(float(one.get("cx")), float(one.get("cy"))) for one in svg.iter("circle") if one.get("class") == kind]


def test_a_roofline_has_slopes_levels_and_the_points_below_them():
    points = [RooflinePoint("add n=5", 0.1, 4e8, "add.html#study-1"), RooflinePoint("dot <k>", 50.0, 9e11)]
    svg = parsed(roofline_chart(points, [10**10, 4 * 10**9], [("float32", 10**12)]))
    roofs = [one for one in svg.iter("line") if one.get("class") == "light"]
    assert len(roofs) == 3
    level = max(roofs, key=lambda one: float(one.get("x2")))
    assert level.get("y1") == level.get("y2")
    for one in roofs:
        if one is not level:  # a slope ends where it meets the level
            assert float(one.get("y2")) == pytest.approx(float(level.get("y1")), abs=0.2)
    (x1, y1), (x2, y2) = places(svg, "winner")
    assert x1 < x2
    assert y1 > y2 > float(level.get("y1"))
    assert [one.get("href") for one in svg.iter("a")] == ["add.html#study-1"]
    titles = [one.text for one in svg.iter("title")]
    assert "dot <k>: 900 GFLOP/s at 50 operations for each byte" in titles
    for copies, dots in (([], []), ([10**9], []), ([], [("float32", 10**9)])):
        parsed(roofline_chart(points[:1], copies, dots))


def test_the_index_leads_to_every_study():
    work = Work(bytes=400, flops=4000)
    one, two = study_report(kept(work=work), CEILINGS), study_report(kept([TRIALS[1]], cases=("<b>",)), None)
    text = index_page("k.py", {"conv.html": ("conv", [one, two]), "%4e.html": ("N", [study_report(kept(), None)])})
    found = Page(text)
    assert sorted(set(found.loads)) == ["%254e.html#study-1", "conv.html#study-1", "conv.html#study-2"]
    assert found.scripts == 1
    assert text.count("Roofline of") == 1
    for part in ("2 kernels, 3 studies", "4.00", "100 ns", "1 run, 1 wrong", "none", "&lt;b&gt;"):
        assert part in text
    assert "No roofline" in index_page("k.py", {"conv.html": ("conv", [two])})


def test_the_code_of_a_config_stands_beside_its_trials():
    code = (
        ConfigCode(TRIALS[-1].config, (("ttir", "module {}"), ("c", "int f(void) { return 1 < 2; }"))),
        ConfigCode(TRIALS[0].config, (("ttir", "x" * (page._LONGEST_CODE + 7)),)),
    )
    text = kernel_page("conv", "k.py", [dataclasses.replace(study_report(kept(), None), code=code)])
    Page(text)
    assert "return 1 &lt; 2;" in text
    assert "7 more characters are left out: silo inspect --code ttir" in text
    part = text.partition("<h3>Code</h3>")[2]
    assert (
        part.index("the winner")
        < part.index("search: 100 ns")
        < part.index("the default")
        < part.index("search: 400 ns")
    )
