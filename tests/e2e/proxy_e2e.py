"""A proxy in front of servers, as a child in the foreground: nginx or haproxy with a config of the test's.

    with Proxy("nginx", lambda folder, port: "...") as port:
"""
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

from radish_e2e import HANG, free_port


def find_proxy(name):
    """The program, or None."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")


class Proxy:
    def __init__(self, name, config):
        self.name, self.config = name, config

    def __enter__(self):
        self.dir = tempfile.TemporaryDirectory(prefix="radish-proxy-")
        for _ in range(5):  # somebody else may take the port meanwhile
            port = free_port()
            config = pathlib.Path(self.dir.name) / "config"
            config.write_text(self.config(self.dir.name, port))
            args = ["-c", config, "-p", self.dir.name] if self.name == "nginx" else ["-db", "-f", config]
            self.log = open(f"{self.dir.name}/log", "wb")
            self.process = subprocess.Popen([find_proxy(self.name), *map(str, args)], stdout=self.log, stderr=self.log)
            while self.process.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    return port
                except ConnectionRefusedError:
                    time.sleep(0.02)
        raise AssertionError(pathlib.Path(f"{self.dir.name}/log").read_text())

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(HANG)
        self.log.close()
        self.dir.cleanup()
