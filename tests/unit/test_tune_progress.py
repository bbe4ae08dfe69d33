import pytest

from silo.tune.progress import format_duration, format_time


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1000, "1 us"),
        (41_530, "41.5 us"),
        (999_400, "999 us"),
        (1_234_567, "1.23 ms"),
        (2_000_000_000, "2 s"),
        (5_000_000_000_000, "5000 s"),
    ],
)
def test_times(time_ns, text):
    assert format_time(time_ns) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (2.13, "2.1 s"), (75.4, "1 min 15 s"), (59.99, "60.0 s")]
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text
