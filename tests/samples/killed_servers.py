"""Servers of remote stores that are killed and started again: ``killed_servers.py webdav|s3 PORT [FOLDER]``.

One process imports the server once, and forks a serving child for each line on its standard input. It prints the
child's process id, so that a test can kill it. The files of the WebDAV server lie in FOLDER and survive it; moto's S3
keeps everything in memory, so each of its servers begins with an empty bucket.
"""

# pyright: reportMissingImports=false

import os
import signal
import socket
import sys
import time
import urllib.request


def webdav(port, folder):
    from cheroot import wsgi
    from wsgidav.wsgidav_app import WsgiDAVApp

    config = {
        "provider_mapping": {"/": folder},
        "simple_dc": {"user_mapping": {"*": True}},
        "verbose": 0,
        "logging": {"enable": False},
    }

    def serve():
        wsgi.Server(("127.0.0.1", port), WsgiDAVApp(config)).start()

    return serve


def s3(port):
    import logging

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    logging.getLogger("werkzeug").setLevel(logging.ERROR)

    def serve():
        run_simple("127.0.0.1", port, DomainDispatcherApplication(create_backend_app), threaded=True)

    return serve


def answers(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main():
    kind, port, *more = sys.argv[1:]
    serve = {"webdav": webdav, "s3": s3}[kind](int(port), *more)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for these children
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(2, 1)
            try:
                serve()
            finally:
                os._exit(1)
        end = time.monotonic() + 60
        while not answers(int(port)) and time.monotonic() < end:
            time.sleep(0.02)
        if kind == "s3":
            request = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
            urllib.request.urlopen(request, timeout=30).close()
        print(child, flush=True)


if __name__ == "__main__":
    main()
