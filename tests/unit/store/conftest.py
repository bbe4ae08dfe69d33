"""Places where remote stores of tests are."""

import pytest

from web_double import web_double


@pytest.fixture
def share(tmp_path):
    folder = tmp_path / "share"
    folder.mkdir()
    return folder


@pytest.fixture
def double():
    with web_double() as made:
        yield made
