#!/usr/bin/env python3
"""Behind nginx and HAProxy, which send the requests of many clients over one connection, nobody
gets another's answer.

Every file of tests/fuzz/corpus/fuzz_http (the first byte is the fuzzer's) is played by an attacker
through each proxy and without one; others ask what they ask before, between and after, and each
must get its own answer. Played directly, no file may get more answers than it has requests.

RADISH_TEST_LONG=1: also mutations of them, for a minute a proxy."""
import os
import random
import select
import socket
import time

from proxy_e2e import Proxy, find_proxy
from radish_e2e import HANG, LONG, ROOT, TINY, Server, run, skip

CORPUS = ROOT / "tests/fuzz/corpus/fuzz_http"

NGINX = """
daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/error.log crit;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
    upstream radish {{ server 127.0.0.1:{radish}; keepalive 1; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://radish;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host localhost;
        }}
    }}
}}
"""

HAPROXY = """
global
    maxconn 512
defaults
    mode http
    timeout connect 5s
    timeout client 20s
    timeout server 60s
    http-reuse always
frontend clients
    bind 127.0.0.1:{port}
    default_backend radish
backend radish
    server radish 127.0.0.1:{radish} pool-max-conn 1
"""


class Client:
    """Somebody who keeps a connection to the proxy and asks for one thing."""

    def __init__(self, port, path, want):
        self.port, self.path, self.want, self.socket = port, path, want, None

    def answer(self):
        """The answer's status and body; a connection that ended between two requests is opened anew."""
        request = f"GET {self.path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        for _ in range(3):
            if self.socket is None:
                self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=HANG)
            data = b""
            try:
                self.socket.sendall(request)
                while b"\r\n\r\n" not in data and (more := self.socket.recv(65536)):
                    data += more
                head, end, body = data.partition(b"\r\n\r\n")
                if end:
                    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n")
                                  if line.lower().startswith(b"content-length:"))
                    while len(body) < length and (more := self.socket.recv(65536)):
                        body += more
                    return head.split()[1], body
            except (ConnectionError, BrokenPipeError):
                assert not data, data
            self.close()
        raise AssertionError(f"no answer to GET {self.path}: {data}")

    def ask(self, after):
        status, body = self.answer()
        if (status, body) != (b"200", self.want):
            raise AssertionError(f"after {after}, GET {self.path} got {status} {body[:200]}")

    def close(self):
        if self.socket is not None:
            self.socket.close()
        self.socket = None


def listen(s, seconds):
    """What comes until the end, or until nothing came for so long."""
    data = b""
    try:
        while select.select([s], [], [], seconds)[0] and (more := s.recv(65536)):
            data += more
    except ConnectionError:
        pass
    return data


def attack(port, data, after=b""):
    """All at once, then a request more if the connection stays; returns what came back."""
    answers = b""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG) as s:
        try:
            s.sendall(data)
            answers = listen(s, 0.02)
            if after:
                s.sendall(after)
                answers += listen(s, 0.02)
        except ConnectionError:
            pass
    return answers


def all_answers(port, data):
    """What comes for that, and then no more: the client's side is shut down."""
    answers = b""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        while more := s.recv(65536):
            answers += more
    return answers


def corpus():
    files = {path.name: path.read_bytes()[1:] for path in sorted(CORPUS.iterdir())}
    assert len(files) > 60, len(files)
    return files


def mutated(files, rng):
    """One of them, changed a little, with a request behind it."""
    data = bytearray(rng.choice(files))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            data[at:at] = rng.choice([b"\r\n", b"\n", b"\r", b" ", b"\t", b"0", b":", b"\0", b";", b"+"])
        elif kind == 1:
            del data[at:at + rng.randrange(1, 9)]
        elif kind == 2 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        else:
            other = rng.choice(files)
            start = rng.randrange(len(other) + 1)
            data[at:at] = other[start:start + rng.randrange(1, 80)]
    return bytes(data)


def play_corpus(proxy, server):
    files = corpus()
    text = NGINX if proxy == "nginx" else HAPROXY
    with Proxy(proxy, lambda folder, port: text.format(dir=folder, port=port, radish=server.port)) as port:
        victims = [Client(port, "/health", b'{"status":"ok"}')]
        victims.append(Client(port, "/get_model_info", server.raw("GET", "/get_model_info")[1]))
        for victim in victims:
            victim.ask("nothing")
        for name, data in files.items():
            for hidden in (b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"):
                attack(port, data, hidden)
                for victim in victims:
                    victim.ask(name)
        count = 0
        if LONG:
            seed = int(os.environ.get("RADISH_TEST_SEED", time.time_ns()))
            rng, until = random.Random(seed), time.monotonic() + 60
            values = list(files.values())
            while time.monotonic() < until:
                data = mutated(values, rng)
                attack(port, data)
                for victim in victims:
                    victim.ask(f"seed {seed}: {data}")
                count += 1
        for victim in victims:
            victim.close()
    print(f"  {proxy}: {len(files)} files and {count} mutations, nobody got another's answer")


def play(proxy):
    if not find_proxy(proxy):
        skip(f"{proxy} is not here")
    with Server(TINY, "--dtype", "f32", "--kv-populate-ahead", 0) as server:
        play_corpus(proxy, server)


def test_answers_behind_nginx():
    play("nginx")


def test_answers_behind_haproxy():
    play("haproxy")


def test_bodies_are_no_requests():
    """Directly: what hides a request gets one answer, a refusal, and the connection ends; the few
    whose second request is an honest one get two."""
    honest = {"smuggle-crlf-target": 2, "smuggle-chunk-13": 2,
              "smuggle-host-target": 2, "smuggle-te-12": 1,
              "smuggle-length-12": 2, "smuggle-trailing": 2, "smuggle-length-09": 1,
              "smuggle-head-many": 1}
    with Server(TINY, "--dtype", "f32", "--kv-populate-ahead", 0) as server:
        for name, data in corpus().items():
            if not name.startswith("smuggle-"):
                continue
            answers = all_answers(server.port, data)
            models = answers.count(b'"object":"list"')
            count = answers.count(b"\r\nContent-Type: ") # each has one
            want = honest.get(name, 1)
            assert count == want, (name, answers)
            assert models == (want == 2), (name, answers)
            if name not in honest:
                assert b"Connection: close" in answers, (name, answers)
                assert answers[9:12] in (b"400", b"404", b"413", b"501", b"505"), (name, answers)


if __name__ == "__main__":
    run(globals())
