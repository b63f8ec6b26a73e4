"""redis-server processes of a test's own: on loopback, on ports that nothing else asks for."""
import random
import socket
import subprocess
import time

from radish_e2e import HANG, check


def until(what, condition):
    end = time.monotonic() + HANG
    while not condition():
        check(time.monotonic() < end, what)
        time.sleep(0.02)


class Redis:
    """A server that answers, its files in `directory`. The port and the one 10000 above it, a
    cluster's own, lie below those that the kernel gives to connections."""

    def __init__(self, directory, *options):
        for _ in range(10):
            self.port = random.randrange(20000, 22768)
            self.process = subprocess.Popen(
                ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                 "--appendonly", "no", "--dir", directory,
                 "--cluster-config-file", f"nodes-{self.port}.conf", *options],
                stdout=subprocess.DEVNULL)
            until("redis-server does not answer", lambda: self.process.poll() is not None or
                  str(self.process.pid) in self.say("INFO server"))
            if self.process.poll() is None:
                return
        check(False, "redis-server ends at once")  # not: another one has the port

    def say(self, words):
        """The answer as text; empty when there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), HANG) as s:
                s.sendall(words.encode() + b"\r\n")
                with s.makefile("rb") as answer:
                    line = answer.readline()
                    return (answer.read(int(line[1:])) if line[:1] == b"$" else line).decode()
        except OSError:
            return ""

    def end(self):
        self.process.kill()
        self.process.wait()
