#!/usr/bin/env python3
"""API keys: who may ask what, and that what one's key has cached another's does not find."""
import json
import os
import pathlib
import re
import tempfile
import time

from radish_e2e import STORIES, Server, check, radish, run

PROMPT = {"prompt": [1] + list(range(3, 100)), "max_tokens": 1, "temperature": 0}


def ask(s, key, path="/v1/completions", body=None, method="POST", header="Authorization"):
    headers = {"Content-Type": "application/json"}
    if key:
        headers[header] = key if header != "Authorization" else "Bearer " + key
    response, text = s.raw(method, path, json.dumps(body or PROMPT), headers)
    return response, json.loads(text) if text else None


def cached(s, key, **more):
    response, told = ask(s, key, body={**PROMPT, **more})
    check(response.status == 200, told)
    return told["usage"]["prompt_tokens_details"]["cached_tokens"]


def with_keys(*args):
    file = tempfile.NamedTemporaryFile("w", suffix=".keys")
    file.write("# people\nbob-key\n\ncarol-key\n")
    file.flush()
    return file, Server(STORIES, "--dtype", "f32", "--api-key", "ann-key", "--api-key-file", file.name,
                        "--served-model-name", "m", *args)


def test_who_may_ask():
    file, server = with_keys("--admin-api-key", "root-key")
    with file, server as s:
        check("-H 'Authorization: Bearer KEY'" in s.banner, s.banner)  # the line to try says so
        for key in (None, "ann-ke", "ann-key2", "x" * 600, "# people"):
            response, told = ask(s, key)
            check(response.status == 401 and told["error"]["code"] == "invalid_api_key", key, told)
            words = "the API key is none of" if key else "wants an API key"
            check(words in told["error"]["message"], key, told)
            check(response.getheader("WWW-Authenticate") == "Bearer")
        for key in ("ann-key", "bob-key", "carol-key", "root-key"):
            check(ask(s, key)[0].status == 200, key)
            check(ask(s, key, header="x-api-key")[0].status == 200, key)
        for path in ("/v1/models", "/metrics", "/server_info", "/nothing"):
            check(s.raw("GET", path, None)[0].status == 401, path)
        check(s.raw("GET", "/health", None)[0].status == 200)
        told = ask(s, None, "/v1/messages")[1]  # in its own words
        check(told["type"] == "error" and told["error"]["type"] == "authentication_error", told)
        check(list(ask(s, None, "/api/chat")[1]) == ["error"])
        check(ask(s, "ann-key", "/flush_cache")[0].status == 403)
        check(ask(s, "root-key", "/flush_cache")[0].status == 200)
        check(ask(s, None, "/flush_cache")[0].status == 401)


def drafted(s, key, **more):
    """Tokens that were guessed of an answer; and the answer."""
    body = {"input_ids": PROMPT["prompt"], **more,
            "sampling_params": {"max_new_tokens": 96, "temperature": 0, "ignore_eos": True}}
    response, told = ask(s, key, "/generate", body)
    check(response.status == 200, told)
    return told["meta_info"]["spec_draft_token_num"], told["output_ids"]


def drafts_are(s, key, wanted):
    """/metrics tells so many of all requests; it may be some moments behind."""
    told = None
    for _ in range(200):
        text = s.raw("GET", "/metrics", None, {"Authorization": "Bearer " + key})[1]
        told = sum(float(n) for n in re.findall(rb"^radish_draft_tokens_total{.*} (\S+)$", text, re.M))
        if told == wanted:
            return
        time.sleep(0.05)
    check(False, told, wanted)


def test_nothing_is_guessed_from_what_another_key_said():
    guesses = "--speculative-algorithm", "tree,recent"
    file, server = with_keys(*guesses)
    with file, server as s:
        none, answer = drafted(s, "ann-key")
        check(none == 0)
        drafts = 0
        for key in ("ann-key", "bob-key"):
            if key == "bob-key":
                for salt in ({}, {"cache_salt": "s"}):
                    check(drafted(s, key, **salt) == (0, answer), salt)
            drafts_are(s, key, drafts)
            # What rows cost is measured; where they are too dear for some answers they are tried again.
            own = []
            while len(own) < 50 and not any(own):
                tokens, again = drafted(s, key)
                check(again == answer, key)
                own.append(tokens)
            check(any(own), key)
            drafts += sum(own)
            drafts_are(s, key, drafts)
    file, server = with_keys("--shared-cache", *guesses)
    with file, server as s:
        drafted(s, "ann-key")
        check(any(drafted(s, "bob-key")[0] for _ in range(50)))


def test_each_key_has_its_own_cache():
    file, server = with_keys()
    with file, server as s:
        check(cached(s, "ann-key") == 0 and cached(s, "ann-key") == 97)
        check(cached(s, "bob-key") == 0 and cached(s, "bob-key") == 97)
        check(cached(s, "ann-key", cache_salt="s") == 0 and cached(s, "ann-key", cache_salt="s") == 97)
        check(cached(s, "bob-key", cache_salt="s") == 0)
        # another's answers are not there, whoever knows their names
        body = {"input": "Once", "max_output_tokens": 1}
        response, told = ask(s, "ann-key", "/v1/responses", body)
        if response.status == 200:  # the model has a template
            path = "/v1/responses/" + told["id"]
            check(ask(s, "ann-key", path, method="GET")[0].status == 200)
            check(ask(s, "bob-key", path, method="GET")[0].status == 404)
            check(ask(s, "bob-key", path, method="DELETE")[0].status == 404)
        # nor are another's sessions, and a name that one took is free for others
        for key in ("ann-key", "bob-key"):
            check(ask(s, key, "/open_session", {"session_id": "mine"})[0].status == 200)
            check(ask(s, key, "/open_session", {"session_id": "mine"})[0].status == 400)
        turn = {"input_ids": [1, 2], "rid": "r", "session_params": {"id": "mine"}}
        check(ask(s, "ann-key", "/generate", turn)[0].status == 200)
        turn["session_params"]["rid"] = "r"
        for key, want in (("ann-key", 200), ("bob-key", 400), ("carol-key", 400)):
            check(ask(s, key, "/generate", {**turn, "rid": "next"})[0].status == want, key)
        check(ask(s, "carol-key", "/close_session", {"session_id": "mine"})[0].status == 404)
        check(ask(s, "bob-key", "/close_session", {"session_id": "mine"})[0].status == 200)
        check(ask(s, "ann-key", "/generate", {**turn, "rid": "last"})[0].status == 200)
    file, server = with_keys("--shared-cache")
    with file, server as s:
        check(cached(s, "ann-key") == 0 and cached(s, "bob-key") == 97)


TIMES = re.compile(r"_ns$|_age|_id$|^(id|created|e2e_latency|port|kv_populated_bytes|self_checks)$")
# Connections are closed when the server gets to it: how many are open is a matter of time, too.
TIMED_LINES = re.compile(r"seconds|cpu_|populated|resident|virtual_memory|self_check|open_fds")


def without_times(told):
    if isinstance(told, dict):
        return {name: without_times(value) for name, value in told.items() if not TIMES.search(name)}
    return [without_times(value) for value in told] if isinstance(told, list) else told


def what_bob_sees(secret, *args):
    """All that bob is told, and what is logged, when ann has asked `secret` under her key and under a salt
    of bob's own key; but for times and random names. How many tokens are guessed depends on times."""
    file, server = with_keys("--log-level", "info", "--speculative-algorithm", "none", *args)
    seen = []
    with file, server as s:
        for key, salt in (("ann-key", None), ("ann-key", None), ("bob-key", "ann's")):
            body = {"input_ids": secret, "sampling_params": {"max_new_tokens": 4, "temperature": 0}}
            ask(s, key, "/generate", {**body, **({"cache_salt": salt} if salt else {})})
        probe = {"input_ids": PROMPT["prompt"], "sampling_params": {"max_new_tokens": 4, "temperature": 0}}
        for _ in range(2):
            for more in {}, {"cache_salt": "another"}, {"extra_key": "x"}:
                seen.append(without_times(ask(s, "bob-key", "/generate", {**probe, **more})[1]))
        for path in "/pin_prefix", "/unpin_prefix":
            seen.append(ask(s, "bob-key", path, {"token_ids": PROMPT["prompt"] + [5]})[1])
        seen.append(without_times(ask(s, "bob-key", "/generate", {**probe, "input_ids": [1, 99999]})[1]))
        for path in "/server_info", "/model_info", "/v1/models", "/get_load":
            seen.append((path, without_times(ask(s, "bob-key", path, method="GET")[1])))
        lines = s.raw("GET", "/metrics", None, {"Authorization": "Bearer bob-key"})[1].decode().split("\n")
        seen.append([line for line in lines if not TIMED_LINES.search(line)])
    log = re.sub(r"\S+Z |[\d.]+ s, request \w+|\"\w+\"|[\d.]+ GB|[\d.]+ s\b|room for \d+", "", s.log)
    check(not re.search("(ann|bob|carol)-key", s.log), s.log)
    return seen, log


def test_nobody_learns_whether_another_has_asked_the_same():
    """Where ann asked what bob asks, and where she asked something else, bob is told the same."""
    same, other = PROMPT["prompt"], [1] + list(range(200, 297))
    with tempfile.TemporaryDirectory() as tmp:
        tiers = ["--enable-hierarchical-cache", "--page-size", "16", "--max-total-tokens", "1024",
                 "--hicache-storage-backend"]
        for args in [], tiers:
            (seen, log), (wanted, quiet) = (
                what_bob_sees(secret, *args, *([f"file:{tmp}/{i}"] if args else []))
                for i, secret in enumerate((same, other)))
            for one, two in zip(seen, wanted):
                check(one == two, one, two)
            log, quiet = (re.sub(re.escape(tmp) + r"\S*", "", text) for text in (log, quiet))
            check(log == quiet, log, quiet)
            found = [told["meta_info"]["cached_tokens"] for told in seen[:6]]
            check(found[:3] == [0, 0, 0] and min(found[3:]) >= 96, found)


def test_pins_are_for_ones_own_prefixes():
    def pin(s, key, path="/pin_prefix", want=200, **more):
        response, told = ask(s, key, path, {"token_ids": PROMPT["prompt"], **more})
        check(response.status == want, key, told)
        check(want != 200 or "ttl_seconds" not in more or told["ttl_seconds"] == more["ttl_seconds"], more, told)
        return told.get("pinned_tokens")

    file, server = with_keys("--admin-api-key", "root-key", "--max-total-tokens", "1024")
    with file, server as s:
        check(pin(s, "ann-key") == 0)  # nothing of it is cached
        cached(s, "ann-key")
        check(pin(s, "bob-key") == 0 and pin(s, "ann-key", ttl_seconds=60) == 98)
        for i in range(12):  # others' prompts
            ask(s, "bob-key", body={**PROMPT, "prompt": [1] + [3 + (k * i + k) % 500 for k in range(97)]})
        check(cached(s, "ann-key") == 97)
        check(pin(s, "ann-key", "/unpin_prefix") == 98)
        check(pin(s, "ann-key", "/hicache/pin_prefix", ttl_seconds=0) == 98)
        check(pin(s, "ann-key", ttl_seconds=-1, want=400) is None)
        check(pin(s, "ann-key", text="both", want=400) is None)
    file, server = with_keys("--admin-api-key", "root-key", "--shared-cache")
    with file, server as s:
        cached(s, "ann-key")
        check(pin(s, "ann-key", want=403) is None and pin(s, "root-key") == 98)
    with Server(STORIES, "--dtype", "f32", "--max-pinned-tokens", "0") as s:
        told = s.ask("/pin_prefix", {"text": "Once"}, 400)
        check("max_pinned_tokens" in told["error"]["message"], told)
    with Server(STORIES, "--dtype", "f32") as s:
        s.ask("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 1})
        told = s.ask("/pin_prefix", {"text": "Once upon a time, then"})
        check(1 < told["pinned_tokens"] < told["tokens"] and told["ttl_seconds"] == 300, told)
        check(s.figures()["pinned_tokens"] == told["pinned_tokens"])
        s.ask("/unpin_prefix", {"text": "Once upon a time, then"})
        check(s.figures()["pinned_tokens"] == 0)


def test_only_administration_is_kept():
    with Server(STORIES, "--dtype", "f32", "--admin-api-key", "root-key") as s:
        check(ask(s, None)[0].status == 200 and ask(s, "other")[0].status == 200)
        check(ask(s, None, "/flush_cache")[0].status == 401)
        check(ask(s, "root-key", "/flush_cache")[0].status == 200)


def test_bad_keys():
    with tempfile.TemporaryDirectory() as tmp:
        path = pathlib.Path(tmp) / "keys"
        for text, word in (("a b\n", "line 1: an API key is printable"), ("\n", "no key in it"),
                           ("#" + "c" * 700, "no key in it"), ("#" + "c" * 700 + "\na b", "line 2: an API key is"),
                           ("a\n" + "x" * 513 + "\n", "line 2: an API key has 1 to 512")):
            path.write_text(text)
            check(word in radish("serve", STORIES, "--api-key-file", path, want=2)[1], text)
        os.unlink(path)
        check("No such file" in radish("serve", STORIES, "--api-key-file", path, want=2)[1])
        check("1 to 512" in radish("serve", STORIES, "--api-key", "", want=2)[1])


if __name__ == "__main__":
    run(globals())
