#!/usr/bin/env python3
"""packaging's container files, as far as they can be tried without Docker: nginx.conf with nginx in front of two
servers (a session stays where it was; one server that is gone is no error), the Dockerfile's words against what is there.
tools/check-container.py (make test-long) runs the Dockerfile's steps."""
import http.client
import json
import pathlib
import re
import subprocess
import tempfile

from proxy_e2e import Proxy, find_proxy
from radish_e2e import HANG, ROOT, TINY, Server, check, radish, run, skip

PACKAGING = ROOT / "packaging"


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
    found = re.search(r"^sglang:prompt_tokens_total\{.*\} (\d+)", server.metrics(), re.M)
    return int(found[1])


def nginx_conf(a, b):
    """packaging/nginx.conf with these two servers, for Proxy."""
    text = (PACKAGING / "nginx.conf").read_text()

    def config(folder, port):
        temp = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        there = text
        for was, now in (("radish-1:30000", f"127.0.0.1:{a.port}"), ("radish-2:30000", f"127.0.0.1:{b.port}"),
                         ("listen 8080;", f"listen 127.0.0.1:{port};"), ("worker_processes auto;", ""),
                         ("proxy_set_header Host $host;", "proxy_set_header Host localhost;"),  # as loopback wants it
                         ("http {", "http { " + temp)):
            check(was in there, was)
            there = there.replace(was, now)
        return f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\n{there}"

    return config


def test_nginx_sends_a_session_where_it_was():
    if not find_proxy("nginx"):
        skip("there is no nginx")
    with Server(TINY) as a, Server(TINY) as b, tempfile.TemporaryDirectory(prefix="radish-nginx-") as tmp:
        tried = pathlib.Path(tmp) / "tried"
        tried.write_text(nginx_conf(a, b)(tmp, 1))
        says = subprocess.run([find_proxy("nginx"), "-t", "-c", tried, "-p", tmp], capture_output=True, text=True)
        check(says.returncode == 0 and "[warn]" not in says.stderr, says.stderr)
        with Proxy("nginx", nginx_conf(a, b)) as port:
            for i in range(16):  # what is asked again finds itself where it was computed
                check(chat(port, f"{i} apples", {"X-Session-Id": f"s{i}"}) > 1, i)
            for i in range(16):
                check(chat(port, f"{i} apples", {"X-Session-Id": f"s{i}"}) == 1, i)
            check(prompts(a) > 0 and prompts(b) > 0, "all sessions went to one server")
            keys = [{"Authorization": "Bearer k"}, {"X-Api-Key": "l"}, {}]
            for headers in keys:
                chat(port, "a pear", headers)
            check(all(chat(port, "a pear", headers) == 1 for headers in keys))
            a.process.terminate()  # the sessions of the one that is gone go to the other
            a.process.wait(HANG)
            for i in range(16):
                chat(port, "a plum", {"X-Session-Id": f"s{i}"})


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
