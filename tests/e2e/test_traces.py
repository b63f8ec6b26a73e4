#!/usr/bin/env python3
"""test_traces.py - requests as OpenTelemetry's spans at a collector, their traces in the log, and logs as
JSON. The collector here is Python's own HTTP server."""
import http.server
import json
import queue
import socket
import threading
import time

from radish_e2e import HANG, STORIES, Server, check, radish, run, skip

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ASK = json.dumps({"prompt": "Once upon a time", "max_tokens": 6, "temperature": 0}).encode()


class Collector:
    """Takes POST /v1/traces; `spans` are what came, one by one."""

    def __init__(self, address="127.0.0.1"):
        self.spans = queue.Queue()
        collector = self
        v6 = ":" in address

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                check(self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json", self.path)
                for resource in body["resourceSpans"]:
                    about = attributes(resource["resource"])
                    check(about["service.name"] == "radish" and about["service.version"], about)
                    for scope in resource["scopeSpans"]:
                        for span in scope["spans"]:
                            collector.spans.put(span)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args):
                pass

        class Listener(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if v6 else socket.AF_INET

        self.http = Listener((address, 0), Handler)
        self.url = f"http://{f'[{address}]' if v6 else address}:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def take(self, count):
        return [self.spans.get(timeout=HANG) for _ in range(count)]

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def attributes(of):
    values = {}
    for attribute in of.get("attributes", []):
        (kind, value), = attribute["value"].items()
        values[attribute["key"]] = int(value) if kind == "intValue" else value
    return values


def ask(s, traceparent=None, path="/v1/completions"):
    headers = {"Content-Type": "application/json", **({"traceparent": traceparent} if traceparent else {})}
    response, answer = s.raw("POST", path, ASK, headers)
    return response, json.loads(answer)


def test_a_request_is_a_span_of_its_callers_trace():
    collector = Collector()
    with Server(STORIES, "--otlp-endpoint", collector.url, "--log-level", "info") as s:
        begun = time.time_ns()
        for _ in range(2):
            response, answer = ask(s, f"00-{TRACE}-{PARENT}-01")
            usage = answer["usage"]
        ask(s, f"00-{TRACE}-{PARENT}-00")  # whose caller does not want it recorded
        ask(s, f"00-{'0' * 32}-{PARENT}-01", "/v1/nothing")  # no trace: ours begins
        came = collector.take(9)
        servers = [span for span in came if span["kind"] == 2]
        check(len(servers) == 3 and not collector.spans.qsize(), came)
        span = servers[1]
        check(span["traceId"] == TRACE and span["parentSpanId"] == PARENT, span)
        check(span["name"] == "POST /v1/completions" and "status" not in span, span)
        about = attributes(span)
        check(about["http.request.method"] == "POST" and about["url.path"] == "/v1/completions", about)
        check(about["http.response.status_code"] == 200 and about["client.address"] == "127.0.0.1", about)
        check(about["radish.request_id"] == response.getheader("X-Request-Id"), about)
        check(about["gen_ai.usage.input_tokens"] == usage["prompt_tokens"], about, usage)
        check(about["gen_ai.usage.output_tokens"] == usage["completion_tokens"], about, usage)
        check(about["gen_ai.usage.cache_read.input_tokens"] == usage["prompt_tokens_details"]["cached_tokens"] > 0)
        parts = [part for part in came if part.get("parentSpanId") == span["spanId"]]
        check([part["name"] for part in parts] == ["queue", "prefill", "decode"], parts)
        at = int(span["startTimeUnixNano"])
        check(abs(at - begun) < HANG * 10**9, at, begun)
        for part in parts:  # one behind the other, and together the whole
            check(int(part["startTimeUnixNano"]) == at and part["traceId"] == TRACE and part["kind"] == 1, part)
            at = int(part["endTimeUnixNano"])
        check(at == int(span["endTimeUnixNano"]), at, span)
        other = servers[2]
        check(other["traceId"] not in (TRACE, "0" * 32) and "parentSpanId" not in other, other)
        check(attributes(other)["http.response.status_code"] == 404, other)
        check(len({one["spanId"] for one in came}) == 9, came)
        until = time.monotonic() + HANG  # they are counted once the collector's answer is there
        while 'radish_otlp_requests_total{model_name="story",result="sent"} 3' not in s.metrics():
            check(time.monotonic() < until, s.metrics())
            time.sleep(0.02)
    check(s.log.count(f", trace {TRACE}, from ") == 3 and f", trace {other['traceId']}, from " in s.log, s.log)
    collector.close()


def test_a_collector_has_an_address_of_ipv6():
    try:
        collector = Collector("::1")
    except OSError:
        skip("there is no IPv6 here")
    with Server(STORIES, "--otlp-endpoint", collector.url) as s:
        ask(s)
        check("POST /v1/completions" in [span["name"] for span in collector.take(4)])
    collector.close()


def test_logs_are_json_line_by_line():
    with Server(STORIES, "--log-format", "json", "--log-level", "info") as s:
        ask(s, f"00-{TRACE}-{PARENT}-01")
        s.raw("GET", "/no\"thing%0A", headers={"X-Request-Id": "mine"})
    lines = [json.loads(line) for line in s.log.splitlines()]
    check(all(line["level"] in ("info", "warning") and line["time"].endswith("Z") for line in lines), lines)
    first, second = [line for line in lines if line["message"] == "request"]
    check(first["method"] == "POST" and first["path"] == "/v1/completions" and first["status"] == 200, first)
    check(first["trace_id"] == TRACE and len(first["span_id"]) == 16 and first["output_tokens"] == 6, first)
    check(first["seconds"] > 0 and first["client"] == "127.0.0.1" and first["cached_tokens"] == 0, first)
    check(second["request_id"] == "mine" and second["status"] == 404 and "trace_id" not in second, second)


def test_a_collector_that_is_away_costs_spans_and_nothing_else():
    collector = Collector()
    url = collector.url
    collector.close()
    with Server(STORIES, "--otlp-endpoint", url + "/v1/traces/") as s:
        check(ask(s)[0].status == 200)
        until = time.monotonic() + HANG
        while 'radish_otlp_requests_total{model_name="story",result="failed"} 0' in s.metrics():
            check(time.monotonic() < until, "no span failed")
            time.sleep(0.02)
        check(ask(s)[0].status == 200)
    check(s.log.count("cannot be reached; spans are dropped") == 1, s.log)
    for url in ("https://127.0.0.1:4318", "127.0.0.1:4318", "http://", "http://127.0.0.1:0", "http://a:b@127.0.0.1",
                "http://127.0.0.1:4318?key=1"):
        check("--otlp-endpoint is like http://" in radish("serve", STORIES, "--otlp-endpoint", url, want=2)[1], url)
    check("--log-format is text or json" in radish("serve", STORIES, "--log-format", "xml", want=2)[1])


run(globals())
