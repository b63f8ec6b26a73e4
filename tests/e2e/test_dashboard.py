#!/usr/bin/env python3
"""What people who look at a server are shown: /inspect/..., the page at /, and who may look.
docs/dashboard.md has the fields. In long runs a Chromium, where there is one, opens the page and uses it."""
import base64
import gzip
import hashlib
import json
import re

import browser
from radish_e2e import TINY, Server, check, long_run, run, skip

ARGS = ["--dtype", "f32", "--kv-populate-ahead", 0]


def say(s, text, want=200, **more):
    return s.ask("/v1/chat/completions", {"messages": [{"role": "system", "content": "You are a helper."},
                                                       {"role": "user", "content": text}],
                                          "max_tokens": 4, "temperature": 0, **more}, want)


class Picture:
    """The tree as one who follows it has it: {id: {column: value}}."""

    def __init__(self, s):
        self.s, self.nodes, self.version = s, {}, 0

    def look(self):
        """Until the server has copied the tree once more, which it does five times a second."""
        before = self.version
        while self.version == before:
            told = self.s.get(f"/inspect/tree?since={self.version}")
            if told["whole"]:
                self.nodes = {}
            for values in told["nodes"]:
                node = dict(zip(told["columns"], values))
                self.nodes[node["id"]] = node
            for gone in told.get("removed", []):
                self.nodes.pop(gone, None)
            self.version, self.told = told["version"], told
        return self

    def check_sound(self):
        for node in self.nodes.values():
            check(node["parent"] == 0 or node["parent"] in self.nodes, node)
            check(node["tokens"] > 0 and node["tiers"] == 1 and not node["hidden_nodes"], node)
        check(len(self.nodes) == self.told["nodes_shown"] == self.told["nodes_total"], self.told)
        check(sum(n["tokens"] for n in self.nodes.values()) == self.told["tokens_total"], self.told)
        check(self.told["tokens_total"] == self.s.figures()["evictable_tokens"], self.told)


def test_a_tree_is_followed_by_differences():
    with Server(TINY, *ARGS, "--max-total-tokens", "512") as s:
        follower, words = Picture(s), "one two three four five six seven eight nine ten eleven twelve".split()
        check(follower.look().told["whole"] and not follower.nodes)
        for round in range(4):
            for turn in range(6):
                say(s, f"{round}{turn} " + " ".join(words[turn:] * 4))
            follower.look()
            check(follower.told["whole"] == False and follower.told["nodes"])
            follower.check_sound()
        told = s.get("/inspect/tree")  # the same picture, or a later one of the same tree
        whole = {v[0]: dict(zip(told["columns"], v)) for v in told["nodes"]}
        check(told["whole"] and whole == follower.nodes, whole, follower.nodes)
        parents = {0}
        for values in told["nodes"]:
            check(values[1] in parents, "a child comes before its parent", told)
            parents.add(values[0])
        check(s.wait_idle()["evicted_tokens"] > 0)

        # the heaviest ones alone, and what is left out is counted
        part = s.get("/inspect/tree?limit=3")
        check(len(part["nodes"]) == 3 and part["nodes_total"] == len(whole), part)
        columns = part["columns"]
        tokens, hidden = columns.index("tokens"), columns.index("hidden_tokens")
        roots = {v[0] for v in part["nodes"]}
        told_of = sum(v[tokens] + v[hidden] for v in part["nodes"])
        left = sum(n["tokens"] for n in whole.values()) - told_of  # below roots that are not told
        check(0 <= left < part["tokens_total"] and roots <= set(whole), left)
        top = max(whole.values(), key=lambda n: sum(m["parent"] == n["id"] for m in whole.values()))
        under = s.get(f"/inspect/tree?under={top['id']}&limit=2")
        check(under["nodes"][0][:2] == [top["id"], 0] and len(under["nodes"]) == 2, under)

        s.ask("/flush_cache", {})
        follower.look()
        check(not follower.nodes and follower.told["nodes_total"] == 0, follower.told)
        for path, param in (("tree?since=-1", "since"), ("tree?limit=99999", "limit"), ("tree?all", None),
                            ("tree?x=1", "x"), ("node", "id"), ("node?id=1&count=4097", "count"),
                            ("status?a=1", "a")):
            check(s.get("/inspect/" + path, 400)["error"]["param"] == param, path)
        check(s.get("/inspect/tree?under=77", 404)["error"]["param"] == "under")
        check(s.get("/inspect/node?id=77", 404)["error"]["param"] == "id")


def test_a_node_says_why_it_is_there():
    with Server(TINY, *ARGS, "--dashboard-text", "--max-total-tokens", "2048") as s:
        say(s, "What is the capital of France?")
        say(s, "What is the capital of Norway?", cache_salt="a secret")
        found = s.ask("/inspect/search", {"text": "CAPITAL of france"})
        check(len(found["nodes"]) == 1 and not found["more"], found)
        check("capital of France?" in found["nodes"][0]["snippet"], found)
        node = s.get(f"/inspect/node?id={found['nodes'][0]['id']}")
        check("the capital of France" in node["text"] and len(node["ids"]) == node["tokens"], node)
        check(node["why"][0]["reason"] in ("evictable", "children") and not node["requests"], node)
        check(node["default_namespace"] and node["path"][-1] == node["id"], node)
        part = s.get(f"/inspect/node?id={node['id']}&from=2&count=3")
        check(part["ids"] == node["ids"][2:5] and part["from"] == 2, part)
        ids = s.ask("/inspect/search", {"ids": node["ids"][1:4]})
        check(node["id"] in [n["id"] for n in ids["nodes"]], ids)
        both = s.ask("/inspect/search", {"text": "the capital of", "limit": 1})
        check(len(both["nodes"]) == 1 and both["more"], both)
        salted = s.ask("/inspect/search", {"text": "Norway"})["nodes"]
        check(s.get(f"/inspect/node?id={salted[0]['id']}")["default_namespace"] is False, salted)
        check("a secret" not in json.dumps([s.get("/inspect/tree"), s.get("/inspect/status"), salted]))

        # one that is held by a request; and what that request is doing
        connection = s.connect()
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True, "stream": True}))
        answer = connection.getresponse()
        answer.read(1)
        status = s.get("/inspect/status")
        check(len(status["requests"]) == 1 and status["now"]["running"] == 1, status)
        request = status["requests"][0]
        check(request["state"] == "decode" and request["name"].startswith("cmpl-"), request)
        check(request["explanation"]["device"]["end"] in ("never_seen", "evicted"), request)
        check(request["max_new_tokens"] == 1500 and request["node"], request)
        Picture(s).look().look()  # the node is newer than the picture of before
        held = s.get(f"/inspect/node?id={request['node']}")
        check(held["requests"] == [request["id"]] and held["why"][0]["reason"] == "locked", held)
        connection.close()
        for body, param in (({}, None), ({"text": ""}, "text"), ({"text": "a", "ids": [1]}, None),
                            ({"ids": []}, "ids"), ({"ids": [-1]}, "ids"), ({"ids": [1] * 257}, "ids"),
                            ({"text": "a", "limit": 0}, "limit"), ({"txt": "a"}, "txt")):
            check(s.ask("/inspect/search", body, 400)["error"]["param"] == param, body)


def test_figures_add_up():
    with Server(TINY, *ARGS, "--max-total-tokens", "512", "--enable-hierarchical-cache") as s:
        for turn in range(12):
            say(s, f"{turn} " + "a lamp and a rope " * 6)
            say(s, f"{turn // 2} " + "a lamp and a rope " * 6)
        s.wait_idle()
        told = s.get("/inspect/status")
        pools = {(p["component"], p["tier"]): p for p in told["pools"]}
        check(set(pools) == {("full", "device"), ("full", "host")}, pools)
        for p in pools.values():
            check(p["total"] == p["held"] + p["protected"] + p["evictable"] + p["available"], p)
        count, figures = told["counters"], s.figures()
        tiers = sum(count[f"cached_{tier}_tokens"] for tier in ("device", "host", "storage"))
        check(count["prompt_tokens"] == count["computed_tokens"] + tiers, count)
        check(count["prompt_tokens"] == figures["prompt_tokens"], count)
        check(count["cached_host_tokens"] > 0 or count["cached_device_tokens"] > 0, count)
        times = told["latency"]
        for kind in ("queue", "first_token", "inter_token", "end_to_end"):
            check(len(times[kind]["counts"]) == len(times["bounds_s"]) + 1, kind)
            check(sum(times[kind]["counts"]) == times[kind]["count"], kind)
        check(times["first_token"]["count"] == times["queue"]["count"] == 24 == count["finished"], times)
        check(times["end_to_end"]["sum_s"] >= times["first_token"]["sum_s"] > 0, times)
        gone = told["evictions"]
        check(sum(gone["tokens"]["device"].values()) == count["evicted_tokens"] > 0, gone)
        check(gone["recent"] and {r["cause"] for r in gone["recent"]} <= {"asked", "room"}, gone)
        check(0 < len(gone["recent"]) <= 32 and gone["policy"] == "lru", gone)
        tree = s.get("/inspect/tree")
        tiers = {v[tree["columns"].index("tiers")] for v in tree["nodes"]}
        check(tiers <= {1, 2, 3} and tiers & {2, 3}, tiers)


def test_who_may_look():
    paths = "/inspect/status", "/inspect/tree", "/inspect/node?id=1"
    search = json.dumps({"ids": [1, 2]}).encode()

    def status(s, path, key=None, **headers):
        post = path == "/inspect/search"
        headers = {k.replace("_", "-"): v for k, v in headers.items()}
        if post:
            headers["Content-Type"] = "application/json"
        if key:
            headers["Authorization"] = "Bearer " + key
        return s.raw("POST" if post else "GET", path, search if post else None, headers)

    def expect(s, want, *more, words="", **headers):
        for path in (*paths, "/inspect/search"):
            response, answer = status(s, path, *more, **headers)
            wanted = 404 if want == 200 and "node" in path else want
            check(response.status == wanted and words in answer.decode(), path, response.status, answer)

    with Server(TINY, *ARGS) as s:  # nobody's keys, on loopback
        expect(s, 200)
        expect(s, 403, Origin="https://evil.example", words="a page of")
        expect(s, 403, Sec_Fetch_Site="cross-site")
        expect(s, 403, Host="evil.example")
        # without --dashboard-text neither text nor ids, nor a search in a namespace of a name
        say(s, "What is the capital of France?", cache_salt="a secret")
        told = say(s, "Where is Oslo?", return_token_ids=True)
        tree = s.get("/inspect/tree")
        for values in tree["nodes"]:
            node = s.get(f"/inspect/node?id={values[0]}")
            check(node["text_hidden"] and "text" not in node and "ids" not in node, node)
        check(s.ask("/inspect/search", {"text": "Oslo"}, 403)["error"]["param"] == "text")
        ids = s.ask("/tokenize", {"prompt": "What is the capital of"})["tokens"][2:]
        check(s.ask("/inspect/search", {"ids": ids}) == {"nodes": [], "more": False, "cut": False})
        ids = s.ask("/tokenize", {"prompt": "Where is Oslo"})["tokens"][2:]
        check(len(s.ask("/inspect/search", {"ids": ids})["nodes"]) == 1, told)
    with Server(TINY, *ARGS, "--api-key", "ann", "--admin-api-key", "root") as s:
        expect(s, 401)
        expect(s, 403, "ann", words="administrator")
        expect(s, 200, "root")
    with Server(TINY, *ARGS, "--admin-api-key", "root", "--report-cached-tokens", "off") as s:
        expect(s, 401)
        expect(s, 200, "root")
    with Server(TINY, *ARGS, "--api-key", "ann") as s:
        expect(s, 403, "ann", words="--admin-api-key")
    with Server(TINY, *ARGS, "--report-cached-tokens", "rounded") as s:
        expect(s, 403, words="--report-cache-figures")
    with Server(TINY, *ARGS, "--no-dashboard") as s:
        expect(s, 404, words="--no-dashboard")


PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_a_page_for_browsers_and_words_for_others():
    with Server(TINY, *ARGS, "--admin-api-key", "root") as s:  # the page itself is nobody's secret
        response, page = s.raw("GET", "/", None, PAGE)
        check(response.status == 200 and response.getheader("Content-Type") == "text/html; charset=utf-8")
        packed, short = s.raw("GET", "/", None, {**PAGE, "Accept-Encoding": "br, gzip;q=0.5"})
        check(packed.getheader("Content-Encoding") == "gzip" and gzip.decompress(short) == page)
        check(len(short) < 60_000 and len(page) < 160_000, len(short), len(page))
        plain = s.raw("GET", "/", None, {**PAGE, "Accept-Encoding": "gzip;q=0"})
        check(plain[0].getheader("Content-Encoding") is None and plain[1] == page)
        head, nothing = s.raw("HEAD", "/", None, PAGE)
        check(head.getheader("Content-Length") == str(len(page)) and not nothing)

        # it runs these scripts and this style, and nothing else; it loads nothing from anywhere
        policy = dict(part.strip().split(" ", 1) for part in
                      response.getheader("Content-Security-Policy").split(";"))
        check(policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'", policy)
        check(policy["connect-src"] == "'self'" and policy["img-src"] == "data:", policy)
        text = page.decode()
        for tag, directive in ("script", "script-src"), ("style", "style-src"):
            bodies = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.S)
            hashes = [base64.b64encode(hashlib.sha256(b.encode()).digest()).decode() for b in bodies]
            check(bodies and policy[directive].split() == [f"'sha256-{h}'" for h in hashes], directive)
            check(text.count(f"<{tag}") == len(bodies), "one with attributes", tag)
        rest = re.sub("<(script|style)>.*?</\1>", "", text, flags=re.S)
        check(not re.search(r"\bon\w+=|\bstyle=|<iframe|<object|<embed|http-equiv", rest), rest)
        for url in re.findall(r"""(?:src|href|action)\s*=\s*["']([^"']*)""", rest):
            check(url.startswith("data:image/svg+xml,"), url)
        check(not re.search(r"url\(|@import|\bimport\s*[({]|importScripts|innerHTML|\beval\(|sourceMappingURL",
                            text), "something that could load or run more")
        check(set(re.findall(r"https?://[^\s\"'`<>)]+", text)) <=
              {"https://github.com/leeoniya/uPlot", "http://www.w3.org/2000/svg"}, "a foreign address")
        for name, want in (("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY"),
                           ("Referrer-Policy", "no-referrer")):
            check(response.getheader(name) == want, name)

        response, words = s.raw("GET", "/", None, {"Accept": "*/*"})
        check(response.getheader("Content-Type").startswith("text/plain"), words)
        for word in ("/v1/chat/completions", "/inspect/status", "/metrics", "Ollama is running"):
            check(word in words.decode(), word, words)
        check(s.raw("GET", "/", None, {**PAGE, "Sec-Fetch-Site": "cross-site"})[0].status == 403)
        check(s.raw("GET", "/", None, {**PAGE, "Host": "evil.example"})[0].status == 403)
    with Server(TINY, *ARGS, "--no-dashboard") as s:
        response, words = s.raw("GET", "/", None, PAGE)
        check(response.getheader("Content-Type").startswith("text/plain"), words)
        check("/inspect" not in words.decode(), words)


# ---- the page, in a browser ----

def place_of(b, where):
    """The middle of a block of the tree, in the window: `where` is an expression with n, its node."""
    return b.run("""(() => { const r = document.querySelector("#tree").getBoundingClientRect();
                     const v = radishTree.place((n) => %s); return v && [r.x + v[0], r.y + v[1]]; })()""" % where)


@long_run
def test_a_browser_shows_it():
    if not browser.find():
        skip("there is no Chromium")
    with Server(TINY, *ARGS, "--dashboard-text", "--admin-api-key", "root") as s, browser.Browser() as b:
        def ask(text):
            s.raw("POST", "/v1/chat/completions", json.dumps(
                {"messages": [{"role": "user", "content": text}], "max_tokens": 4}),
                {"Content-Type": "application/json"})

        for city in "Rome", "Oslo", "Lima":
            ask(f"What is the capital near {city}?")
        b.open(f"http://127.0.0.1:{s.port}/")
        b.wait("!document.querySelector('#gate').hidden")  # it wants the key, and not another one
        b.type("#key", "wrong")
        b.key("Enter", 13)
        b.wait("/not the administrator/.test(document.querySelector('#gatewords').textContent)")
        b.type("#key", "root")
        b.key("Enter", 13)
        b.wait("document.querySelectorAll('.tile').length === 6 && !document.querySelector('#board').hidden")
        check(b.run("sessionStorage.getItem('radish-key')") == "root" and not b.run("document.cookie"))
        check(b.run("localStorage.length") == 0)
        b.wait("/[1-9][0-9]* nodes/.test(document.querySelector('#tree-sum').textContent)")

        # a click on a node: what it says, and why it is there
        b.wait("radishTree.still()")
        b.run("document.querySelector('#tree').scrollIntoView({block: 'center'})")
        b.mouse(*place_of(b, "n.kids.length > 1"))
        b.wait("/the capital near/.test(document.querySelector('#node pre')?.textContent)")
        check("stand on it" in b.run("document.querySelector('#node .why').textContent"))
        # a search: one block, which is then chosen
        b.type("#needle", "lima?")
        b.wait("document.querySelectorAll('#found button').length === 1")
        check("Lima?" in b.run("document.querySelector('#found button').textContent"))
        b.click("#found button")
        b.wait("/Lima/.test(document.querySelector('#node pre')?.textContent)")
        # a chat: the second answer found the first one's prompt
        for text in "Where is Rome?", "And Oslo?":
            b.type("#words", text)
            b.key("Enter", 13)
            b.wait("document.querySelector('#send').textContent === 'Send' && "
                   "document.querySelector('.msg.assistant:last-child .note')")
        notes = b.run("[...document.querySelectorAll('.msg .note')].map((n) => n.textContent)")
        check(len(notes) == 2 and re.search("[1-9][0-9]* cached", notes[1]), notes)
        # "new" while an answer is on its way: the next conversation has nothing of it
        b.type("#words", "Where is Bonn?")
        b.run("document.querySelector('#say').requestSubmit(), document.querySelector('#chat-new').click()")
        b.wait("document.querySelector('#send').textContent === 'Send'")
        b.type("#words", "And Oslo?")
        b.key("Enter", 13)
        b.wait("document.querySelector('.msg.assistant:last-child .note')")
        asked = [e["request"] for e in b.seen("Network.requestWillBeSent") if "/v1/chat" in e["request"]["url"]]
        check([m["content"] for m in json.loads(asked[-1]["postData"])["messages"]] == ["And Oslo?"], asked[-1])
        b.wait("document.querySelectorAll('canvas').length === 7")  # the tree and six curves
        # nothing was asked of anybody else, and nothing broke a rule
        for asked in b.seen("Network.requestWillBeSent"):
            url = asked["request"]["url"]
            check(url.startswith((f"http://127.0.0.1:{s.port}/", "data:image/svg+xml", "about:")), url)
        broken = [e["entry"]["text"] for e in b.seen("Log.entryAdded")
                  if e["entry"]["source"] == "security" or "Content Security" in e["entry"]["text"]]
        check(not broken and not b.seen("Runtime.exceptionThrown"), broken, b.seen("Runtime.exceptionThrown"))
        # at the width of a telephone nothing is wider than the screen
        b.resize(360, 740)
        b.wait("document.documentElement.clientWidth === 360")
        check(b.run("document.documentElement.scrollWidth") == 360)


if __name__ == "__main__":
    run(globals())
