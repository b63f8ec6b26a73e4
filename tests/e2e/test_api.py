#!/usr/bin/env python3
"""test_api.py - the server as clients of OpenAI and SGLang see it, with a real model."""
import json
import socket
import threading
import time

from radish_e2e import STORIES, TINY, Server, can_populate, check, run, story_golden

GOLDEN = story_golden()
F32 = ("--dtype", "f32", "--max-total-tokens", "4096", "--threads", "2")


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def whole_text(s, ids):
    """What a server makes of the ids when they are decoded one by one, as a stream."""
    chunks = s.stream("/generate", {"input_ids": [1], "sampling_params": {
        "temperature": 0, "max_new_tokens": len(ids), "ignore_eos": True}})
    check(chunks[-1]["output_ids"] == ids, chunks[-1])
    return chunks[-1]["text"]


def test_completions():
    with Server(STORIES, *F32) as s:
        body = {"prompt": [1], "max_tokens": 20, "temperature": 0, "return_token_ids": True}
        answer = s.ask("/v1/completions", body)
        choice = answer["choices"][0]
        check(choice["token_ids"] == GOLDEN[0]["greedy_ids"][:20], choice)
        check(choice["text"] == whole_text(s, choice["token_ids"]), choice)
        check(choice["finish_reason"] == "length" and choice["index"] == 0, choice)
        check(answer["usage"]["prompt_tokens"] == 1, answer)
        check(answer["usage"]["completion_tokens"] == 20, answer)
        check(answer["usage"]["total_tokens"] == 21 and cached(answer) == 0, answer)
        check(answer["object"] == "text_completion" and answer["model"] == "story", answer)

        # The second time all but the last prompt token is found, and the answer is the same.
        prompt = [1] + choice["token_ids"][:15]
        first = s.ask("/v1/completions", {**body, "prompt": prompt})
        second = s.ask("/v1/completions", {**body, "prompt": prompt})
        check(cached(second) == len(prompt) - 1, second)
        check(first["choices"] == second["choices"])
        check(first["choices"][0]["token_ids"] == GOLDEN[0]["greedy_ids"][15:35])

        text = s.ask("/v1/completions", {"prompt": "Once upon a time", "temperature": 0})
        check(text["usage"]["completion_tokens"] == 16, text)
        s.wait_idle()


def test_completions_stream_equals_the_answer():
    with Server(STORIES, *F32) as s:
        body = {"prompt": "Once upon a time", "max_tokens": 50, "temperature": 0,
                "return_token_ids": True}
        whole = s.ask("/v1/completions", body)
        chunks = s.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}})
        check(chunks[-1]["choices"] == [] and "usage" in chunks[-1], chunks[-1])
        check(chunks[-1]["usage"]["completion_tokens"] == 50, chunks[-1])
        check(chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, chunks[-1])
        check(all(c["usage"] is None for c in chunks[:-1]))
        parts = [c["choices"][0] for c in chunks[:-1]]
        check("".join(p["text"] for p in parts) == whole["choices"][0]["text"])
        check(sum((p["token_ids"] for p in parts), []) == whole["choices"][0]["token_ids"])
        check([p["finish_reason"] for p in parts][-1] == "length")
        check(all(p["finish_reason"] is None for p in parts[:-1]))
        check(len({c["id"] for c in chunks}) == 1)
        without = s.stream("/v1/completions", body)
        check(not any("usage" in c for c in without))


def test_batches_and_their_order():
    with Server(STORIES, *F32) as s:
        body = {"max_tokens": 8, "temperature": 0, "return_token_ids": True}
        prompts = [case["prompt_ids"] for case in GOLDEN]
        answer = s.ask("/v1/completions", {**body, "prompt": prompts})
        check([c["index"] for c in answer["choices"]] == list(range(len(prompts))))
        for case, choice in zip(GOLDEN, answer["choices"]):
            check(choice["token_ids"] == case["greedy_ids"][:8], choice)
        check(answer["usage"]["prompt_tokens"] == sum(map(len, prompts)))
        texts = s.ask("/v1/completions", {**body, "prompt": ["Once", "One day"]})
        check(len(texts["choices"]) == 2)
        streamed = {}
        for chunk in s.stream("/v1/completions", {**body, "prompt": prompts}):
            choice = chunk["choices"][0]
            streamed.setdefault(choice["index"], []).extend(choice["token_ids"])
        check(streamed == {i: c["greedy_ids"][:8] for i, c in enumerate(GOLDEN)}, streamed)
        s.wait_idle()


def test_stop_strings_and_tokens():
    with Server(STORIES, *F32) as s:
        body = {"prompt": "Once upon a time", "max_tokens": 100, "temperature": 0}
        full = s.ask("/v1/completions", body)["choices"][0]["text"]
        stop = full[30:36]
        answer = s.ask("/v1/completions", {**body, "stop": stop})["choices"][0]
        check(answer["finish_reason"] == "stop" and answer["stop_reason"] == stop, answer)
        check(answer["text"] == full[:full.index(stop)], answer)
        listed = s.ask("/v1/completions", {**body, "stop": ["@@@", stop]})["choices"][0]
        check(listed == answer)
        parts = s.stream("/v1/completions", {**body, "stop": stop})
        check("".join(p["choices"][0]["text"] for p in parts) == answer["text"])

        ids = GOLDEN[0]["greedy_ids"]
        token = ids[9]
        answer = s.ask("/generate", {"input_ids": [1], "sampling_params": {
            "temperature": 0, "max_new_tokens": 50, "stop_token_ids": [token]}})
        check(answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": token}, answer)
        check(len(answer["output_ids"]) in (ids.index(token), ids.index(token) + 1), answer)


def test_seeds_repeat():
    with Server(STORIES, *F32) as s:
        body = {"prompt": "Once upon a time", "max_tokens": 30, "temperature": 1.0}
        one, two = (s.ask("/v1/completions", {**body, "seed": 7})["choices"] for _ in range(2))
        check(one == two)
        others = {s.ask("/v1/completions", body)["choices"][0]["text"] for _ in range(5)}
        check(len(others) > 1, others)


def test_generate():
    with Server(STORIES, *F32) as s:
        body = {"input_ids": [1], "sampling_params": {"temperature": 0, "max_new_tokens": 12}}
        answer = s.ask("/generate", body)
        meta = answer["meta_info"]
        check(answer["output_ids"] == GOLDEN[0]["greedy_ids"][:12], answer)
        check(meta["finish_reason"] == {"type": "length", "length": 12}, meta)
        check(meta["prompt_tokens"] == 1 and meta["completion_tokens"] == 12, meta)
        check(meta["cached_tokens"] == 0 and meta["e2e_latency"] > 0 and meta["id"], meta)
        chunks = s.stream("/generate", body)
        for before, after in zip(chunks, chunks[1:]):  # cumulative
            check(after["text"].startswith(before["text"]))
            check(after["output_ids"][:len(before["output_ids"])] == before["output_ids"])
        check(chunks[-1]["output_ids"] == answer["output_ids"])
        check(chunks[-1]["text"] == answer["text"])
        check(chunks[-1]["meta_info"]["finish_reason"]["type"] == "length")
        check(all("cached_tokens" in c["meta_info"] for c in chunks))
        batch = s.ask("/generate", {"text": ["Once upon", "One day"], "rid": "mine",
                                    "sampling_params": {"max_new_tokens": 3}})
        check(len(batch) == 2 and batch[1]["meta_info"]["completion_tokens"] == 3, batch)
        check(batch[0]["meta_info"]["id"] == "mine_0", batch)
        default = s.ask("/generate", {"text": "Once", "sampling_params": {"ignore_eos": True}})
        check(default["meta_info"]["completion_tokens"] == 128, default)


def test_namespaces_do_not_share():
    with Server(STORIES, *F32) as s:
        prompt = [1] + GOLDEN[0]["greedy_ids"][:40]
        body = {"prompt": prompt, "max_tokens": 2, "temperature": 0}
        for extra in ({}, {"cache_salt": "a"}, {"cache_salt": "b"}, {"extra_key": "a"}):
            check(cached(s.ask("/v1/completions", {**body, **extra})) == 0, extra)
            check(cached(s.ask("/v1/completions", {**body, **extra})) == len(prompt) - 1, extra)


def test_chat():
    with Server(TINY, "--max-total-tokens", "4096", "--threads", "2") as s:
        messages = [{"role": "system", "content": "You are a helpful assistant."},
                    {"role": "user", "content": "What is the capital of France?"}]
        body = {"messages": messages, "temperature": 0, "max_tokens": 20}
        answer = s.ask("/v1/chat/completions", body)
        message = answer["choices"][0]["message"]
        check(message["role"] == "assistant" and "Paris" in message["content"], answer)
        check(answer["choices"][0]["finish_reason"] == "stop", answer)
        check(answer["object"] == "chat.completion" and cached(answer) == 0, answer)
        messages += [message, {"role": "user", "content": [
            {"type": "text", "text": "What is the capital of Japan?"}]}]
        chunks = s.stream("/v1/chat/completions",
                          {**body, "stream_options": {"include_usage": True}})
        check(chunks[0]["choices"][0]["delta"]["role"] == "assistant", chunks[0])
        text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1])
        check("Tokyo" in text, text)
        check(cached(chunks[-1]) >= answer["usage"]["prompt_tokens"] - 1, chunks[-1])
        error = s.ask("/v1/chat/completions",
                      {"messages": [{"role": 7, "content": "x"}]}, 400)["error"]
        check("role" in error["message"], error)  # which roles there are, the template says
        s.ask("/v1/chat/completions", {"messages": [{"role": "developer", "content": "x"},
                                                    {"role": "user", "content": "y"}]})
        s.wait_idle()


def test_errors():
    with Server(STORIES, *F32) as s:
        for path, body, words in (
                ("/v1/completions", b"{", "line 1"),
                ("/v1/completions", b'{"prompt": "\xff"}', "byte"),
                ("/v1/completions", {"prompt": ""}, "empty"),
                ("/v1/completions", {"prompt": []}, "empty"),
                ("/v1/completions", {"prompt": [512]}, "vocabulary"),
                ("/v1/completions", {"prompt": [-1]}, "-1"),
                ("/v1/completions", {"prompt": [1] * 600}, "context"),
                ("/v1/completions", {"prompt": "word " * 3000}, ""),
                ("/v1/completions", {"prompt": "a", "n": -1}, "n"),
                ("/v1/completions", {"prompt": "a", "n": 129}, "n"),
                ("/v1/completions", {"prompt": "a", "temperature": -1}, "temperature"),
                ("/v1/completions", {"prompt": "a", "top_p": 2}, "top_p"),
                ("/v1/completions", {"prompt": "a", "max_tokens": -5}, "max_tokens"),
                ("/v1/completions", {"prompt": "a", "logprobs": 21}, "logprobs"),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, "chat"),
                ("/generate", {"text": "a", "input_ids": [1]}, "either")):
            answer = s.ask(path, body, 400)
            check(words in answer["error"]["message"], body, answer)
            check(answer["error"]["type"] == "invalid_request_error", answer)
        for path, body, param in (
                ("/v1/completions", {"prompt": [1] * 600}, "prompt"),
                ("/v1/completions", {"prompt": "word " * 3000}, "prompt"),
                ("/v1/completions", {"prompt": "a", "temperature": -1}, "temperature"),
                ("/v1/completions", {"prompt": "a", "extra_key": "k" * 300, "cache_salt": "s" * 300},
                 "extra_key"),
                ("/generate", {"input_ids": [1] * 600}, "input_ids")):
            check(s.ask(path, body, 400)["error"]["param"] == param, path, param)
        # The empty text with BOS in front is a prompt for some servers; either way no crash.
        check(s.raw("GET", "/nothing")[0].status == 404)
        response, _ = s.raw("GET", "/generate")
        check(response.status == 405 and response.getheader("Allow") == "POST")
        check(s.raw("POST", "/generate", b" " * 100_000_000)[0].status == 413)
        s.ask("/v1/completions", {"prompt": "still here", "max_tokens": 1})
        s.wait_idle()


def test_a_client_that_vanishes_frees_its_slots():
    with Server(STORIES, *F32) as s:
        for i in range(40):  # a busy machine may not see it go before the answer is whole
            stream = i % 2 == 0
            body = json.dumps({"prompt": "Once", "max_tokens": 480, "stream": stream,
                               "ignore_eos": True}).encode()
            for _ in range(4):
                c = socket.create_connection(("127.0.0.1", s.port))
                c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                          % len(body) + body)
                if stream:
                    check(c.recv(100))
                c.close()
            figures = s.wait_idle()
            if i and figures["num_aborted"]:
                break
        check(figures["num_aborted"] >= 1, figures)


def test_many_connections():
    with Server(STORIES, *F32) as s:
        open_ones = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(1000)]
        s.ask("/v1/completions", {"prompt": "Once", "max_tokens": 2})
        wrong, lock = [], threading.Lock()

        def work():
            try:
                s.ask("/v1/completions", {"prompt": "Once", "max_tokens": 4})
            except Exception as e:
                with lock:
                    wrong.append(e)
        threads = [threading.Thread(target=work) for _ in range(100)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        check(not wrong, wrong[:1])
        for c in open_ones:
            c.close()
        s.wait_idle()


def test_queue_full_is_429():
    with Server(STORIES, *F32, "--max-queued-requests", "2", "--max-running-requests", "1") as s:
        statuses, lock = [], threading.Lock()
        body = json.dumps({"prompt": "Once", "max_tokens": 200, "ignore_eos": True})

        def work():
            response, _ = s.raw("POST", "/v1/completions", body)
            with lock:
                statuses.append((response.status, response.getheader("Retry-After")))
        for _ in range(10):  # 16 clients may come so slowly that each finds a place
            threads = [threading.Thread(target=work) for _ in range(16)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            if (429, "1") in statuses:
                break
        check(all(status in (200, 429) for status, _ in statuses), statuses)
        check((429, "1") in statuses and (200, None) in statuses, statuses)
        s.wait_idle()


def test_admin():
    with Server(STORIES, *F32, "--served-model-name", "mine", "--page-size", "16") as s:
        check(s.get("/health")["status"] == "ok")
        models = s.get("/v1/models")
        check(models["data"][0]["id"] == "mine" and models["object"] == "list", models)
        check(s.get("/v1/models/mine")["id"] == "mine")
        s.get("/v1/models/other", 404)
        info = s.get("/get_model_info")
        check(info["model_path"] == str(STORIES) and info["is_generation"], info)
        info = s.get("/server_info")
        check(info["page_size"] == 16 and info["max_total_num_tokens"] == 4096, info)
        prompt = [1] + GOLDEN[0]["greedy_ids"][:100]
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
        s.ask("/v1/completions", body)
        check(cached(s.ask("/v1/completions", body)) == 96)
        metrics = s.metrics()
        check('sglang:cached_tokens_total{model_name="mine",cache_source="device"} 96' in metrics,
              metrics)
        s.ask("/flush_cache?timeout=5", b"")
        check(s.wait_idle()["evictable_tokens"] == 0)
        check(cached(s.ask("/v1/completions", body)) == 0)
        for path, allowed in [("/generate", "POST"), ("/health", "GET, HEAD"),
                              ("/hicache/storage-backend", "GET, HEAD, PUT, DELETE")]:
            response = s.raw("DELETE" if path != "/hicache/storage-backend" else "POST", path, b"")[0]
            check(response.status == 405 and response.getheader("Allow") == allowed,
                  path, response.getheader("Allow"))


def test_tokens_are_told_and_read():
    with Server(STORIES, *F32) as s:
        text = "Once upon a time"
        told = s.ask("/tokenize", {"prompt": text, "return_token_strs": True})
        check(told["count"] == len(told["tokens"]) == len(told["token_strs"]), told)
        check(told["max_model_len"] == 512 and "".join(told["token_strs"][1:]).strip() == text, told)
        back = s.ask("/detokenize", {"tokens": told["tokens"][1:]})
        check(back["prompt"] == back["text"] and back["text"].strip() == text, back)
        both = s.ask("/detokenize", {"tokens": [told["tokens"][1:], told["tokens"][1:]]})
        check(both["text"] == [back["text"]] * 2, both)
        s.ask("/detokenize", {"tokens": [512]}, 400)
        answer = s.ask("/v1/completions", {"prompt": text, "max_tokens": 1})
        check(answer["usage"]["prompt_tokens"] == told["count"])
        for prompt, told in (("a " * 600, "the prompt has "), ("a " * 6000, "more than 4096 tokens")):
            error = s.ask("/v1/completions", {"prompt": prompt}, 400)["error"]
            check(error["code"] == "context_length_exceeded", error)
            check(told in error["message"] and "the context is 512 tokens" in error["message"], error)


def test_requests_are_ended_by_name():
    with Server(STORIES, *F32) as s:
        check(s.get("/health_generate") == {"status": "ok"})
        check(s.get("/get_load")[0]["num_reqs"] == 0)
        answers = []
        body = {"text": "Once", "rid": "mine", "sampling_params": {"max_new_tokens": 400, "ignore_eos": True}}
        t = threading.Thread(target=lambda: answers.append(s.ask("/generate", body)))
        t.start()
        while not answers and not s.get("/get_load")[0]["num_reqs"]:
            time.sleep(0.002)
        check(s.ask("/abort_request", {"rid": "other"}) == {"aborted": 0})
        ended = s.ask("/abort_request", {"rid": "mine"})["aborted"]
        t.join()
        reason = answers[0]["meta_info"]["finish_reason"]["type"]
        check(reason == ("abort" if ended else "length"), ended, answers)  # it may have been faster
        check(s.ask("/abort_request", {"abort_all": True}) == {"aborted": 0})
        s.ask("/abort_request", {}, 400)
        s.ask("/abort_request", {"rid": "x", "all": True}, 400)


def test_memory_is_made_ready_ahead_of_requests():
    prompt = [1] + GOLDEN[0]["greedy_ids"][:100]
    for ahead in (None, 0.0001, 0):
        args = [] if ahead is None else ["--kv-populate-ahead", ahead]
        with Server(STORIES, *F32, *args) as s:
            info = s.get("/server_info")
            token, pool = info["kv_bytes_per_token"], info["max_total_num_tokens"]
            if not can_populate():
                continue
            wanted = (pool + 1) * token if ahead is None else int(ahead * 1e9) // token * token
            check(s.await_populated(wanted) == wanted, args, wanted, s.figures())
            s.ask("/v1/completions", {"prompt": prompt, "max_tokens": 1})
            if ahead:  # 101 tokens behind the first slot, which nobody is given
                check(s.await_populated(wanted + 80 * token) < wanted + 120 * token)
            check('radish_kv_populated_bytes{model_name="story"}' in s.metrics())


def test_the_wait_for_a_next_token_is_limited_unless_told_otherwise():
    for args, limit in (([], "than 500 ms"), (["--max-itl-ms", "80"], "than 80 ms"),
                        (["--max-itl-ms", "0"], None), (["--chunked-prefill-size", "-1"], None)):
        with Server(STORIES, *F32, *args) as s:
            check(limit in s.banner if limit else "next tokens" not in s.banner, args, s.banner)
            check(s.ask("/v1/completions", {"prompt": "Once", "max_tokens": 2})["choices"])


def test_stop_lets_requests_finish():
    s = Server(STORIES, *F32)
    s.__enter__()
    answers = []
    t = threading.Thread(target=lambda: answers.append(
        s.ask("/v1/completions", {"prompt": "Once", "max_tokens": 400, "ignore_eos": True})))
    t.start()
    while not answers and not s.figures()["num_running_reqs"]:
        time.sleep(0.005)
    s.__exit__(None, None, None)
    t.join()
    check(len(answers) == 1, "the running request was not answered")


if __name__ == "__main__":
    run(globals())
