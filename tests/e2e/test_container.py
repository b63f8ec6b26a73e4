#!/usr/bin/env python3
"""packaging's container files, as far as they can be tried without Docker: nginx.conf with nginx in front of two
servers (a session stays where it was; one server that is gone is no error), the Dockerfile's words against what is there.
tools/check-container.py (make test-long) runs the Dockerfile's steps."""
import http.client
import json
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import time

from radish_e2e import HANG, ROOT, TINY, Server, check, radish, run, skip

PACKAGING = ROOT / "packaging"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def chat(port, words, headers):
    """How many of the prompt's tokens had to be computed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG)
    body = {"messages": [{"role": "user", "content": words}], "temperature": 0}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json", **headers})
    reply = connection.getresponse()
    said = reply.read().decode()
    connection.close()
    check(reply.status == 200, reply.status, said)
    usage = json.loads(said)["usage"]
    return usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]


def prompts(server):
    found = re.search(r"^sglang:prompt_tokens_total\{.*\} (\d+)", server.raw("GET", "/metrics")[1].decode(), re.M)
    return int(found[1])


def test_nginx_sends_a_session_where_it_was():
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/sbin:/usr/local/sbin")
    if not nginx:
        skip("there is no nginx")
    with Server(TINY) as a, Server(TINY) as b, tempfile.TemporaryDirectory(prefix="radish-nginx-") as tmp:
        port = free_port()
        text = (PACKAGING / "nginx.conf").read_text()
        check("radish-1:30000" in text and "radish-2:30000" in text and "listen 8080;" in text)
        text = text.replace("radish-1:30000", f"127.0.0.1:{a.port}").replace("radish-2:30000", f"127.0.0.1:{b.port}")
        text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};").replace("worker_processes auto;", "")
        text = text.replace("proxy_set_header Host $host;", "proxy_set_header Host localhost;")  # as loopback wants it
        temp = " ".join(f"{kind}_temp_path {tmp}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        text = f"daemon off; pid {tmp}/pid; error_log {tmp}/error.log;\n" + text.replace("http {", "http { " + temp)
        config = pathlib.Path(tmp) / "nginx.conf"
        config.write_text(text)
        tried = subprocess.run([nginx, "-t", "-c", config, "-p", tmp], capture_output=True, text=True)
        check(tried.returncode == 0 and "[warn]" not in tried.stderr, tried.stderr)
        proxy = subprocess.Popen([nginx, "-c", config, "-p", tmp], stderr=subprocess.DEVNULL)
        try:
            until = time.monotonic() + HANG
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    check(time.monotonic() < until and proxy.poll() is None, "nginx does not listen")
                    time.sleep(0.02)
            for i in range(16):  # what is asked again finds itself where it was computed
                check(chat(port, f"{i} apples", {"X-Session-Id": f"s{i}"}) > 1, i)
            for i in range(16):
                check(chat(port, f"{i} apples", {"X-Session-Id": f"s{i}"}) == 1, i)
            check(prompts(a) > 0 and prompts(b) > 0, "all sessions went to one server")
            keys = [{"Authorization": "Bearer k"}, {"X-Api-Key": "l"}, {}]
            for headers in keys + keys:
                chat(port, "a pear", headers)
            check(all(chat(port, "a pear", headers) == 1 for headers in keys))
            a.process.terminate()  # the sessions of the one that is gone go to the other
            a.process.wait(HANG)
            for i in range(16):
                chat(port, "a plum", {"X-Session-Id": f"s{i}"})
        finally:
            proxy.terminate()
            check(proxy.wait(HANG) == 0)


def test_the_dockerfile_names_what_is_there():
    text = re.sub(r"\\\n", " ", (PACKAGING / "Dockerfile").read_text())
    for words in re.findall(r"^COPY (?!--from)(.*)$", text, re.M):
        check(all((ROOT / word).exists() for word in words.split()[:-1]), words)
    for words in re.findall(r"^RUN (tools/\S+)", text, re.M):
        check((ROOT / words).is_file(), words)
    command = json.loads(re.search(r"^HEALTHCHECK .*CMD (\[.*\])$", text, re.M)[1])
    check(command == ["radish", "health"] and "/health" in radish("health", "--help")[0], command)
    user = re.findall(r"^USER (\S+)$", text, re.M)
    check(user and user[-1] not in ("0", "root"), user)
    words = json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", text, re.M)[1]) + json.loads(re.search(r"^CMD (\[.*\])$", text, re.M)[1])
    check(words == ["radish", "serve", "--config", "/etc/radish/radish.conf"], words)
    # Its config is one: what is missing is the model, and nothing else.
    says = radish("serve", "--config", PACKAGING / "container.conf", want=1)[1]
    check("/models/model.gguf" in says, says)
    for line in re.findall(r"^ +- (--\S+)$", (PACKAGING / "compose.yaml").read_text(), re.M):
        check(line in radish("serve", "--help")[0], line)


run(globals())
