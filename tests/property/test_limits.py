"""No property test fails because a machine is slow."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=2)
@given(st.integers())
def test_an_example_may_take_longer_than_hypothesis_allows(number):
    time.sleep(0.21)  # its own limit is 0.2 s
