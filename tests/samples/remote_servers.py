"""Remote stores for tests: a folder, and servers on the loopback interface if they are installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from contextlib import contextmanager
from unittest import mock

import pytest

from web_double import web_double


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def folder(tmp_path):
    """Yield the address of a folder, as on a file share."""
    (tmp_path / "share").mkdir()
    yield f"file:{tmp_path / 'share'}"


@contextmanager
def double(tmp_path):
    """Yield the address of a WebDAV server made with the standard library, which is always available."""
    with web_double() as made:
        yield made.address


@contextmanager
def webdav(tmp_path):
    """Yield the address of a WebDAV server of another project (wsgidav)."""
    app = pytest.importorskip("wsgidav.wsgidav_app", reason="no WebDAV server: pip install wsgidav cheroot")
    wsgi = pytest.importorskip("cheroot.wsgi", reason="no WebDAV server: pip install wsgidav cheroot")
    root = tmp_path / "webdav"
    root.mkdir()
    config = {
        "provider_mapping": {"/": str(root)},
        "simple_dc": {"user_mapping": {"*": {"me": {"password": "p@ss word"}}}},
        "http_authenticator": {"accept_basic": True, "accept_digest": False, "default_to_digest": False},
        "verbose": 0,
        "logging": {"enable": False},
    }
    server = wsgi.Server(("127.0.0.1", 0), app.WsgiDAVApp(config))
    server.prepare()
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield f"http://me:p%40ss%20word@127.0.0.1:{server.bind_addr[1]}/"
    finally:
        server.stop()
        thread.join()


def s3_environment(port):
    """Return the environment variables that clients of a made-up S3 on this machine need."""
    return {
        "AWS_ENDPOINT": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "made-up",
        "AWS_SECRET_ACCESS_KEY": "made-up",
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def s3(tmp_path):
    """Yield the address of moto's S3; clients find their credentials in the environment, as usual."""
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'kernel-silo[remote]'")
    server = pytest.importorskip("moto.server", reason="no S3 server: pip install 'moto[server]'")
    made = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    made.start()
    host, port = made.get_host_and_port()
    urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/bucket", method="PUT"), timeout=20).close()
    try:
        with mock.patch.dict(os.environ, s3_environment(port)):
            yield "s3://bucket/team/silo"
    finally:
        made.stop()


def start_redis(folder, port, *options):
    """Start a Redis server, wait until it answers, and return its process."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", *options]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as probe:
                probe.sendall(b"PING\r\n")
                if probe.recv(64).startswith((b"+PONG", b"-NOAUTH")):
                    return server
        except OSError:
            time.sleep(0.05)
    server.kill()
    raise AssertionError("redis-server does not answer")


@contextmanager
def redis(tmp_path):
    """Yield the address of a real Redis server with a password."""
    port = free_port()
    server = start_redis(tmp_path, port, "--requirepass", "p@ss", "--appendonly", "yes", "--appendfsync", "always")
    try:
        yield f"redis://:p%40ss@127.0.0.1:{port}/3"
    finally:
        server.kill()
        server.wait()


SERVERS = {"file": folder, "double": double, "webdav": webdav, "s3": s3, "redis": redis}
