"""Tests in processes of their own whose GPU drivers are stubs; ``tests/native/test_on_stub.py`` starts them."""

import os

import pytest

collect_ignore_glob = [] if os.environ.get("SILO_TEST_STUB") else ["*"]


@pytest.fixture
def stub():
    import gpu_stub

    yield gpu_stub.stub
    gpu_stub.stub.fail_no_more()
