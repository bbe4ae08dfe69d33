"""Files of other tuners with a random part replaced: read, or refused as what they are, and nothing else."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_backend.measure import fake_study
from silo.core.config import Config
from silo.errors import TuneError
from silo.tuner.formats.kernel_tuner import write_cache
from silo.tuner.formats.result_files import read_results
from silo.tuner.formats.t4 import write_t4
from silo.tuner.formats.triton_configs import write_autotune
from silo.tuner.trial import Status

STUDY = fake_study()
TRIALS = [
    STUDY.trial(Config.of(BLOCK=64, num_warps=4), Status.OK, (30, 10, 20), compile_ns=7, max_error=0.5),
    STUDY.failed(Config.of(BLOCK=128, num_warps=4), Status.WRONG, "out"),
]
FILES = {
    "kernel-tuner": write_cache("conv", "gpu", (5,), TRIALS),
    "t4": write_t4((STUDY, trial) for trial in TRIALS),
    "triton": write_autotune((5,), TRIALS),
}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["ok", "InvalidConfig"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def places(node, path=()):
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def replaced(node, path, value):
    if not path:
        return value
    head, *rest = path
    if isinstance(node, dict):
        return {**node, head: replaced(node[head], rest, value)}
    return [replaced(item, rest, value) if place == head else item for place, item in enumerate(node)]


def outcome(file, form):
    """What is read, or the message of the one error that may be raised."""
    try:
        return read_results(file, form)
    except TuneError as error:
        return str(error)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), form=st.sampled_from(sorted(FILES)))
def test_a_replaced_part_is_read_or_refused(tmp_path, data, form):
    document = json.loads(FILES[form])
    path = data.draw(st.sampled_from(list(places(document))))
    file = tmp_path / "results.json"
    file.write_text(json.dumps(replaced(document, path, data.draw(JSON))))
    found = outcome(file, form)
    if isinstance(found, str):
        assert "results.json: not a" in found
    else:
        assert all(sample >= 0 for trial in found.trials for sample in trial.samples_ns)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(form=st.sampled_from(sorted(FILES)), cut=st.integers(0, 2000), more=st.binary(max_size=3))
def test_a_cut_file_is_read_or_refused(tmp_path, form, cut, more):
    file = tmp_path / "results.json"
    file.write_bytes(FILES[form].encode()[:cut] + more)
    found = outcome(file, form)
    assert not isinstance(found, str) or "results.json: not" in found
