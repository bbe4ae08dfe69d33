"""Places where remote stores of tests are."""

import pytest

from silo.store.remote import address as objects
from silo.store.remote import client as link
from silo.store.remote import cloud, redis_server, web
from web_double import web_double

PATIENT_S = 60.0


@pytest.fixture
def share(tmp_path):
    folder = tmp_path / "share"
    folder.mkdir()
    return folder


@pytest.fixture
def double():
    with web_double() as made:
        yield made


@pytest.fixture
def short_limits():
    """For tests of the limits themselves: the limits are those of users."""


@pytest.fixture(autouse=True)
def patient(request, monkeypatch):
    """The limits of remote stores are long, so that no result depends on how busy the machine is."""
    if "short_limits" not in request.fixturenames:
        for module in (objects, link, web, redis_server, cloud):
            for limit in ("LIMIT_S", "LISTING_S", "_WHOLE_S"):
                if hasattr(module, limit):
                    monkeypatch.setattr(module, limit, PATIENT_S)
