#!/usr/bin/env python3
"""The program speaks HTTPS: with a client that knows its certificate, one that does not, and one that
speaks HTTP; a certificate that is renewed; and files that are none."""
import http.client
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time

from radish_e2e import HANG, STORIES, Server, check, radish, run, skip


class Https(Server):
    """A server whose clients trust one certificate."""

    def __init__(self, trusted, *args):
        super().__init__(STORIES, "--dtype", "f32", "--log-level", "info", *args)
        self.trust(trusted)

    def trust(self, certificate):
        self.trusted = ssl.create_default_context(cafile=certificate)

    def connect(self):
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=HANG, context=self.trusted)


def write_certificate(folder, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.crt", "-days", "2",
                    "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True)


def test_https():
    if not shutil.which("openssl"):
        skip("no openssl to make a certificate with")
    with tempfile.TemporaryDirectory() as tmp:
        write_certificate(tmp, "a")
        write_certificate(tmp, "b")
        with Https(f"{tmp}/a.crt", "--ssl-certfile", f"{tmp}/a.crt", "--ssl-keyfile", f"{tmp}/a.key") as s:
            check("https://127.0.0.1" in s.banner, s.banner)
            body = {"prompt": "Once upon", "max_tokens": 5, "temperature": 0}
            text = s.ask("/v1/completions", body)["choices"][0]["text"]
            streamed = s.stream("/v1/completions", body)
            check("".join(e["choices"][0]["text"] for e in streamed) == text, streamed)
            with socket.create_connection(("127.0.0.1", s.port), timeout=HANG) as plain:
                plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                check(b"https://" in plain.makefile("rb").read())
            url = f"https://127.0.0.1:{s.port}"
            check("first token" in radish("top", url, "--ca-file", f"{tmp}/a.crt")[0])
            check("first token" in radish("top", url, "--insecure")[0])
            for args in ([], ["--ca-file", f"{tmp}/b.crt"]):
                _, err = radish("top", url, *args, want=1)
                check("no TLS with 127.0.0.1" in err and "verif" in err, err)
            check("holds no certificates" in radish("top", url, "--ca-file", f"{tmp}/a.key", want=2)[1])
            for name in "crt", "key":  # as whoever renews certificates does it
                shutil.copy(f"{tmp}/b.{name}", f"{tmp}/a.{name}")
            s.process.send_signal(signal.SIGHUP)
            until = time.monotonic() + HANG
            while True:  # a client that trusts the one before turns away
                try:
                    s.get("/health")
                except ssl.SSLCertVerificationError:
                    break
                check(time.monotonic() < until, "the certificate stays")
            s.trust(f"{tmp}/b.crt")
            s.wait_idle()
        check("the certificate was read again" in s.log and "no TLS: http request" in s.log, s.log)


def test_bad_certificates():
    with tempfile.TemporaryDirectory() as tmp:
        path = pathlib.Path(tmp) / "a.pem"
        told = radish("serve", STORIES, "--ssl-keyfile", path, want=2)[1]
        check("need --ssl-certfile" in told, told)
        told = radish("serve", STORIES, "--ssl-certfile", path, want=1)[1]
        check(f"--ssl-certfile {path}: No such file" in told and told.count("\n") == 1, told)
        path.write_text("nothing")
        told = radish("serve", STORIES, "--ssl-certfile", path, want=1)[1]
        check("no certificate in PEM" in told, told)


if __name__ == "__main__":
    run(globals())
