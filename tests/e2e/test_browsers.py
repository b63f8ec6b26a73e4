#!/usr/bin/env python3
"""A page that is open in a browser on the server's machine, and programs that are none: what each
may do with a server as it is started by default, and with --allow-origin and --allow-host."""
import json

from radish_e2e import TINY, Server, check, radish, run

ASK = json.dumps({"prompt": [1, 2, 3], "max_tokens": 1})
ARGS = ["--dtype", "f32", "--kv-populate-ahead", 0]


def expect(server, status, method, path, body=None, **headers):
    response, answer = server.raw(method, path, body,
                                  {k.replace("_", "-"): v for k, v in headers.items()})
    check(response.status == status, method, path, headers, response.status, answer)
    return response


def test_a_foreign_page_may_do_nothing():
    foreign = {"Origin": "https://evil.example"}
    form = {"Content_Type": "text/plain", "Sec_Fetch_Site": "cross-site"}
    with Server(TINY, *ARGS) as server:
        expect(server, 403, "POST", "/flush_cache", **foreign)
        expect(server, 403, "POST", "/flush_cache", Sec_Fetch_Site="cross-site")
        expect(server, 403, "POST", "/v1/completions", ASK, **form, **foreign)
        expect(server, 403, "GET", "/v1/models", **foreign)
        expect(server, 403, "GET", "/v1/models", Host="evil.example")
        expect(server, 403, "OPTIONS", "/v1/completions", Access_Control_Request_Method="POST",
               **foreign)
        # its own pages, and what the user opens
        own = {"Origin": f"http://127.0.0.1:{server.port}", "Sec_Fetch_Site": "same-origin"}
        expect(server, 415, "POST", "/v1/completions", ASK, **own)
        expect(server, 200, "POST", "/v1/completions", ASK, Content_Type="application/json", **own)
        expect(server, 200, "GET", "/v1/models", Sec_Fetch_Site="none")
        # programs: curl -d, and one behind a forwarded port
        expect(server, 200, "POST", "/v1/completions", ASK,
               Content_Type="application/x-www-form-urlencoded")
        expect(server, 200, "POST", "/flush_cache")
        expect(server, 200, "GET", "/v1/models", Host="localhost:8080")
        figures = server.wait_idle()
        check(figures["num_requests"] == 2, figures)


def test_named_origins_and_hosts_may():
    page = {"Origin": "http://localhost:3000", "Sec_Fetch_Site": "same-site"}
    with Server(TINY, *ARGS, "--allow-origin", "http://localhost:3000", "--allow-origin", "null",
                "--allow-host", "llm.example") as server:
        asked = expect(server, 204, "OPTIONS", "/v1/completions", **page,
                       Access_Control_Request_Method="POST",
                       Access_Control_Request_Headers="content-type")
        check(asked.getheader("Access-Control-Allow-Headers") == "content-type")
        answer = expect(server, 200, "POST", "/v1/completions", ASK, **page,
                        Content_Type="application/json")
        check(answer.getheader("Access-Control-Allow-Origin") == page["Origin"])
        expect(server, 200, "GET", "/v1/models", Origin="null")
        expect(server, 403, "GET", "/v1/models", Origin="http://localhost:3001")
        expect(server, 200, "GET", "/v1/models", Host="llm.example")
        expect(server, 403, "GET", "/v1/models", Host="llm.example.evil")


def test_names_that_match_nothing_are_refused():
    for args in (["--allow-origin", "localhost:3000"], ["--allow-origin", "http://a/"],
                 ["--allow-host", "http://a"], ["--allow-host", ""]):
        _, err = radish("serve", TINY, *args, want=2)
        check(args[0] in err, err)


if __name__ == "__main__":
    run(globals())
