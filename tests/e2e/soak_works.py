"""What the clients of test_soak.py and test_record.py do, each a few requests with an answer of which it knows what it
must be.

A work is a method named work_...; its first word after that is its name in the counts. It ends with all
that it began: nothing of it runs, and its sessions are closed or end by themselves soon."""
import collections
import http.client
import json
import re
import socket
import threading
import traceback

from radish_e2e import HANG, check

SYSTEMS = ["You know countries. " + "Answer in one word. " * n for n in (1, 9, 30)] + [
    "You are a radish in a garden of words, and count what grows there: " + ", ".join(
        f"{n} {what}" for n in range(2, m) for what in ("carrots", "beans")) for m in (9, 25, 45)]
QUESTIONS = [f"What is the {what} of {where}?" for what in ("capital", "currency", "continent")
             for where in ("France", "Italy", "Japan", "Kenya", "Peru", "Norway")] + [
    f"What is {a} plus {b}?" for a in (3, 17, 420) for b in (5, 88)]
TOOLS = [{"type": "function", "function": {"name": name, "description": about, "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1,
                                                                                 "maximum": 9}},
    "required": ["city", "days"], "additionalProperties": False}}}
         for name, about in (("weather", "Weather to come."), ("trips", "Trips that leave there."))]
# The shipped model's template, with tools.
TEMPLATE = ("{{ bos_token }}{% if tools %}{{ '<|system|>' }}Call with <tool_call>{\"name\": ..., \"arguments\": ...}"
            "</tool_call>: {{ tools|tojson }}{{ '<|end|>' }}{% endif %}"
            "{% for m in messages %}{{ '<|' + m.role + '|>' }}{{ m.content or '' }}"
            "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
            "{{ '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")
CITY = {"type": "object", "properties": {
    "city": {"type": "string", "maxLength": 9}, "year": {"type": "integer", "minimum": 1000, "maximum": 2030},
    "near": {"type": "array", "items": {"type": "string", "pattern": "^[A-Z][a-z]{1,6}$"}, "maxItems": 2}},
    "required": ["city", "year", "near"], "additionalProperties": False}
FORMS = [{"response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": CITY}}},
         {"regex": "[a-f]{2,4}-[0-9]{1,3}x"}, {"guided_choice": ["red", "blue"]},
         {"ebnf": 'root ::= a{2,4} "-" [0-9]{1,3} "x"\na ::= [a-f]'}]
BAD = [("/v1/chat/completions", b"{", 400), ("/v1/chat/completions", {"messages": []}, 400),
       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "nonsense": 1}, 400),
       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "regex": "(a"}, 400),
       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "model": "other"}, 404),
       ("/v1/completions", {"prompt": "a", "temperature": -1}, 400),
       ("/v1/completions", {"prompt": [1, 999999]}, 400),
       ("/v1/completions", {"prompt": "Once " * 5000}, 400),
       ("/v1/completions", {"prompt": "a", "n": 10 ** 9}, 400),
       ("/generate", {"input_ids": [5], "session_params": {"id": "nobody's"}}, 400),
       ("/generate", {"text": "a", "sampling_params": {"ebnf": "root ::= other"}}, 400),
       ("/close_session", {"session_id": "nobody's"}, 404),
       ("/v1/responses", {"input": "a", "previous_response_id": "resp_nobody"}, 400),
       ("/v1/messages", {"messages": [{"role": "user", "content": "a"}]}, 400),
       ("/nothing", {}, 404), ("/v1/models", {}, 405)]
GARBAGE = [b"\x00\x01\x02\r\n\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\n", b"POST /generate HTTP/1.1\r\nHost: 127.0.0.1\r\n"
           b"Content-Length: 1000\r\n\r\n{\"text\"", b"", b"POST /generate HTTP/1.1\r\nContent-Length: -1\r\n\r\n"]
ASIDE = ("cache_salt", "prediction", "priority", "prompt_cache_key", "extra_key", "stream")  # change no token


class Client:
    """One of the clients: a key, a connection that it keeps, random numbers of its own. `soak`: the Load, where
    it counts, and who else computes an answer."""

    def __init__(self, soak, key, rng):
        self.soak, self.key, self.rng, self.connection = soak, key, rng, None
        self.names, self.stored = 0, []

    # ---- asking ----

    def open(self):
        return http.client.HTTPConnection("127.0.0.1", self.soak.port, timeout=HANG)

    def close(self):
        if self.connection:
            self.connection.close()
            self.connection = None

    def send(self, connection, path, body, key=None, method="POST"):
        data = body if isinstance(body, bytes) else json.dumps(body)
        connection.request(method, path, data if method == "POST" else None,
                           {"Content-Type": "application/json", "Authorization": "Bearer " + (key or self.key)})
        return connection.getresponse()

    def ask(self, path, body=None, want=200, key=None, method="POST"):
        """Over the connection that it keeps, which the server may close after an error."""
        self.connection = self.connection or self.open()
        response = self.send(self.connection, path, body, key, method)
        answer = response.read()
        if response.will_close:
            self.close()
        self.soak.count("status %d" % response.status)
        check(response.status == want, path, body, response.status, "wanted", want, answer[:500])
        kind = response.getheader("Content-Type", "")
        return json.loads(answer) if "json" in kind else answer.decode()

    def stream(self, path, body, leave_after=None, meanwhile=None):
        """What came, or None where it left early. After the first piece `meanwhile` is called."""
        connection = self.open()
        try:
            response = self.send(connection, path, {**body, "stream": True})
            check(response.status == 200, path, response.status, body)
            events, pieces = [], 0
            while line := response.readline():
                if not line.startswith(b"data: "):
                    continue
                pieces += 1
                if leave_after is not None and pieces > leave_after:
                    return None
                if line.strip() != b"data: [DONE]":
                    events.append(json.loads(line[6:]))
                if meanwhile and pieces == 1:
                    meanwhile()
            check(line == b"" and pieces > len(events), "a stream without its end", body, events[-1:])
            return events
        finally:
            connection.close()

    # ---- what it asks ----

    def name(self):
        self.names += 1
        return f"{self.key}-{self.names}"

    def sampling(self):
        """Tokens that any server chooses likewise: greedy, or by a seed."""
        if self.rng.random() < 0.5:
            return {"temperature": 0}
        return {"temperature": 0.9, "top_p": 0.95, "seed": self.rng.randrange(1000)}

    def aside(self):
        """What changes how it is computed, and nothing else."""
        more = {}
        if self.rng.random() < 0.2:
            more["cache_salt"] = f"salt {self.rng.randrange(3 if self.rng.random() < 0.7 else 10 ** 6)}"
        if self.rng.random() < 0.2 and self.soak.pins:
            more["prompt_cache_key"] = "kept"
        if self.rng.random() < 0.2:
            more["priority"] = self.rng.randrange(4)
        return more

    def messages(self):
        return [{"role": "system", "content": self.rng.choice(SYSTEMS)},
                {"role": "user", "content": self.rng.choice(QUESTIONS)}]

    def body(self, **more):
        return {"messages": self.messages(), "max_tokens": self.rng.randrange(4, 40), "return_token_ids": True,
                **self.sampling(), **self.aside(), **more}

    def prompt_ids(self, most=900):
        """Families of prompts, one of which begins as another ends."""
        family, tokens = self.rng.randrange(5), self.rng.randrange(20, most)
        return [5 + (family * 37 + n * (family + 3)) % 2900 for n in range(tokens)]

    def tokens_of(self, answer):
        return [choice["token_ids"] for choice in answer["choices"]]

    def chat(self, body, path="/v1/chat/completions"):
        answer = self.ask(path, body)
        self.soak.compare(self.rng, path, {k: v for k, v in body.items() if k not in ASIDE},
                          self.tokens_of(answer), self.tokens_of, body)
        return answer

    def generate(self, body, history=None):
        """`history`: the whole prompt, where the request's is a turn of a session."""
        answer = self.ask("/generate", body)
        cold = {k: v for k, v in body.items() if k not in (*ASIDE, "session_params", "rid")}
        if history is not None:
            cold["input_ids"] = history
        self.soak.compare(self.rng, "/generate", cold, self.facts(answer), self.facts, body)
        return answer

    def facts(self, answer):
        """Token ids and, where they were asked for, logprobs, of which each bit counts."""
        if isinstance(answer, list):
            return [self.facts(one) for one in answer]
        return answer["output_ids"], answer["meta_info"].get("output_token_logprobs")

    # ---- works ----

    def work_talk(self):
        """Some turns, with tools that it may or must call."""
        messages = self.messages()
        tools = {"tools": TOOLS[:self.rng.randrange(1, 3)]} if self.rng.random() < 0.6 else {}
        for _ in range(self.rng.randrange(1, 5)):
            choice = {"tool_choice": self.rng.choice(["auto", "none", "required"])} if tools else {}
            called = choice.get("tool_choice") == "required"
            body = {**self.body(**tools, **choice), "messages": messages, **({"max_tokens": 150} if called else {})}
            answer = self.chat(body)["choices"][0]["message"]
            calls = answer.get("tool_calls", [])
            check(not called or calls, body, answer)
            messages = messages + [{k: v for k, v in answer.items() if k in ("role", "content", "tool_calls")}]
            for call in calls:
                arguments = json.loads(call["function"]["arguments"])
                check(list(arguments) == ["city", "days"] and arguments["city"] in ("Paris", "Rome"), call)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": "sunny"})
            if len(calls) > 3:
                return  # it calls for ever
            messages.append({"role": "user", "content": self.rng.choice(QUESTIONS)})

    def work_stream(self):
        body = self.body()
        events = self.stream("/v1/chat/completions", body)
        ids = [token for e in events for c in e["choices"] for token in c.get("token_ids") or []]
        self.soak.compare(self.rng, "/v1/chat/completions", {k: v for k, v in body.items() if k not in ASIDE},
                          [ids], self.tokens_of, body)

    def work_leave(self):
        """Closes the connection before or in the midst of an answer."""
        body = {"input_ids": self.prompt_ids(), **self.aside_of_generate(),
                "sampling_params": {"max_new_tokens": 300, "ignore_eos": True, "n": self.rng.randrange(1, 3)}}
        if self.rng.random() < 0.3:
            connection = self.open()
            connection.request("POST", "/generate", json.dumps(body), {"Authorization": "Bearer " + self.key})
            connection.close()
        else:
            self.stream("/generate", body, leave_after=self.rng.randrange(12))

    def aside_of_generate(self):
        return {k: v for k, v in self.aside().items() if k != "prompt_cache_key"}

    def work_abort(self):
        rid = self.name()
        body = {"input_ids": self.prompt_ids(300), "rid": rid, "sampling_params": {
            "max_new_tokens": 200, "ignore_eos": True, "temperature": 0}}
        events = self.stream("/generate", body, meanwhile=lambda: self.ask("/abort_request", {"rid": rid}))
        reason = events[-1]["meta_info"]["finish_reason"]["type"]
        check(reason in ("abort", "length"), events[-1])
        self.soak.count("ended by " + reason)

    def work_form(self):
        form = self.rng.choice(FORMS)
        body = self.body(**form, temperature=1, seed=self.rng.randrange(100))
        body["max_tokens"] = 200
        text = self.chat(body)["choices"][0]["message"]["content"]
        if "response_format" in form:
            check(list(json.loads(text)) == ["city", "year", "near"], text)
        elif "guided_choice" in form:
            check(text in ("red", "blue"), text)
        else:
            check(re.fullmatch("[a-f]{2,4}-[0-9]{1,3}x", text), text)

    def work_several(self):
        if self.rng.random() < 0.5:
            self.chat(self.body(n=self.rng.randrange(2, 5), temperature=1, seed=self.rng.randrange(100)))
        else:
            prompt = self.prompt_ids(200)
            self.generate({"input_ids": [prompt, prompt + [7], self.prompt_ids(100)], "sampling_params": {
                "max_new_tokens": 12, "temperature": 0}, "return_logprob": True, **self.aside_of_generate()})

    def work_foretold(self):
        """The same once more, with a guess that is right, or in part."""
        body = self.body(temperature=0)
        body["max_tokens"] = 60
        said = self.chat(body)["choices"][0]
        guess = said["message"]["content"] or "nothing"
        if self.rng.random() < 0.5:
            middle = len(guess) // 2
            guess = guess[:middle] + " radish " + guess[middle:]
        again = self.chat({**body, "prediction": {"type": "content", "content": guess}})["choices"][0]
        check(again["token_ids"] == said["token_ids"], "a prediction changed", body, said, again)

    def work_session(self):
        streaming, lapses = self.rng.random() < 0.5, self.rng.random() < 0.3
        session = self.ask("/open_session", {"capacity_of_str_len": 1000, "streaming": streaming,
                                             "timeout": 3 if lapses else 600})
        history, before = [], None
        for _ in range(1 if lapses else self.rng.randrange(1, 6)):
            own = self.prompt_ids(150)
            params = {"id": session, **({"rid": before} if before else {})}
            kept = history
            if before and not streaming and self.rng.random() < 0.3:
                params["offset"] = self.rng.randrange(1, len(history))
                kept = history[:params["offset"]]
            body = {"input_ids": own, "session_params": params, "return_logprob": True, "sampling_params": {
                "max_new_tokens": self.rng.randrange(1, 20), "temperature": 0, "ignore_eos": True}}
            answer = self.generate(body, kept + own)
            history = kept + own + answer["output_ids"]
            before = answer["meta_info"]["id"]
        if self.rng.random() < 0.2 and not streaming:
            self.stream("/generate", {**body, "session_params": {"id": session, "rid": before}}, leave_after=2)
        if not lapses:
            self.ask("/close_session", {"session_id": session})

    def work_bad(self):
        for path, body, want in self.rng.sample(BAD, 3):
            self.ask(path, body, want)
        if self.rng.random() < 0.5:
            with socket.create_connection(("127.0.0.1", self.soak.port)) as raw:
                raw.sendall(self.rng.choice(GARBAGE))

    def work_flush(self):
        """The store, while others use it; the server may say that it did not."""
        connection = self.open()
        response = self.send(connection, "/flush_cache?tiers=storage&timeout=0.2", b"", self.soak.admin)
        text = response.read()
        connection.close()
        check(response.status in (200, 400, 409, 503), response.status, text)
        self.soak.count(f"flush {response.status}")

    def work_pin(self):
        prompt = {"token_ids": self.prompt_ids(200)}
        self.ask("/pin_prefix", prompt)
        if self.rng.random() < 0.5:
            self.ask("/unpin_prefix", prompt)

    def work_look(self):
        for path in self.rng.sample(["/metrics", "/server_info", "/v1/models", "/health", "/get_load", "/model_info"], 3):
            self.ask(path, method="GET")
        self.ask("/inspect/tree", key=self.soak.admin, method="GET")
        self.ask("/inspect/status", key=self.soak.admin, method="GET")

    def work_dialects(self):
        question = self.rng.choice(QUESTIONS)
        limits = {"temperature": 0}
        first = self.ask("/v1/responses", {"input": question, "max_output_tokens": 20, **limits})
        second = self.ask("/v1/responses", {"input": "And of Spain?", "max_output_tokens": 20, **limits,
                                            "previous_response_id": first["id"]})
        said = [item["content"][0]["text"] for item in first["output"] if item["type"] == "message"]
        told = self.ask("/v1/messages", {"max_tokens": 20, **limits, "system": self.rng.choice(SYSTEMS),
                                         "messages": [{"role": "user", "content": question}]})
        check(told["type"] == "message", told)
        told = self.ask("/api/chat", {"messages": [{"role": "user", "content": question}], "stream": False,
                                      "options": {"num_predict": 20, "temperature": 0}})
        check([told["message"]["content"]] == said, told, said)
        self.stored += [first["id"], second["id"]]
        self.forget_stored(but=4)

    def forget_stored(self, but=0):
        """Answers that the server keeps, for an hour, but for the last few."""
        while len(self.stored) > but:
            stored = self.stored.pop(0)
            check(self.ask("/v1/responses/" + stored, method="DELETE")["deleted"], stored)

    def work_embed(self):
        body = {"input": [self.rng.choice(QUESTIONS), self.prompt_ids(300)]}
        vectors = [one["embedding"] for one in self.ask("/v1/embeddings", {**body, **self.aside_of_generate()})["data"]]
        self.soak.compare(self.rng, "/v1/embeddings", body, vectors,
                          lambda cold: [one["embedding"] for one in cold["data"]], body)

    def work_long(self):
        """A long prompt that others begin with, too."""
        self.generate({"input_ids": self.prompt_ids(1900), "return_logprob": True, **self.aside_of_generate(),
                       "sampling_params": {"max_new_tokens": self.rng.randrange(1, 60), **{
                           k: v for k, v in self.sampling().items() if k != "seed"}, "sampling_seed": 5}})


WORKS = {name[5:]: getattr(Client, name) for name in dir(Client) if name.startswith("work_")}
RARE = {"flush": 0.15, "bad": 0.5, "look": 0.3, "pin": 0.5, "dialects": 0.4, "embed": 0.5}  # else 1


class Load:
    """Clients of one server, side by side. What is done with their answers, compare(), is a test's to say; without
    `pins` nothing asks for one."""

    def __init__(self, server, admin, names, pins=True):
        self.port, self.admin, self.pins = server.port, admin, pins
        self.names = [name for name in names if pins or name != "pin"]
        self.lock, self.counts, self.failures = threading.Lock(), collections.Counter(), []

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def work(self, number, key, rng, enough):
        """A client's thread: one work after another. The first that fails ends all."""
        client, name = Client(self, key, rng), "nothing"
        try:
            while not enough.is_set():
                name = rng.choices(self.names, [RARE.get(name, 1) for name in self.names])[0]
                WORKS[name](client)
                self.count("work " + name)
            client.forget_stored()
        except Exception:
            self.failures.append(f"client {number}, {name}:\n{traceback.format_exc()}")
            enough.set()
        finally:
            client.close()

    def run(self, seconds, clients):
        """`clients`: of each its key and its dice."""
        enough = threading.Event()
        timer = threading.Timer(seconds, enough.set)
        threads = [threading.Thread(target=self.work, args=(n, *client, enough)) for n, client in enumerate(clients)]
        for thread in [timer, *threads]:
            thread.start()
        for thread in threads:
            thread.join()
        timer.cancel()
