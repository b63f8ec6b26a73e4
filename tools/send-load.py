#!/usr/bin/python3
"""send-load.py - sends a server requests that share prefixes, and says what it computed of them.

    tools/send-load.py --port 30000
    tools/send-load.py --port 30000 --workload W1,W3 --style sglang --json

Four workloads of made-up token ids, the same for the same --seed:

  W1 few-shot   64 prompts behind one prefix of 1,536 tokens, 64 of their own each; answers of 16
  W2 chats      16 conversations of 4 turns behind one prompt of 512; 128 new tokens a turn, answers of 64
  W3 tree       behind a root of 1,024: 4, 16 and 64 prompts on three levels, each its parent's prompt and
                answer and 16 tokens of its own; answers of 64
  W4 agents     4 templates of 1,024 tokens; 64 prompts behind them (the k-th template as often as 1/k), 256
                tokens of their own; answers of 32

--clients (16) send at one time; a turn or branch is sent when what it continues has been answered.
--divide N has N times fewer prompts (W1, W4) or conversations (W2), and one level fewer (W3).

With --style openai the requests go to /v1/completions, with sglang to /generate, with llamacpp to
/completion; always streamed, greedy, with answers of full length. Per workload: seconds, the median and
the longest wait for a first token, output tokens a second, and prompt tokens: `evaluated`, those that the
server says it did not take from its cache, beside `once`, what computing each prefix once takes. The last
token of an answer has no K/V, so whatever continues an answer computes that token, too.

A server that does not tell an answer's token ids cannot be sent its continuation as it was: ids are then
made up, and counted. The exit status is 1 when a request failed.

Python's standard library only."""
import argparse
import concurrent.futures
import dataclasses
import http.client
import json
import random
import statistics
import sys
import threading
import time


# ---- what is sent ----

@dataclasses.dataclass
class Step:
    """A prompt: what it continues (`before`: token ids; or the prompt and answer of the step that
    has it in `then`) and its own tokens."""
    own: list
    answer: int
    before: list = dataclasses.field(default_factory=list)
    then: list = dataclasses.field(default_factory=list)


class Ids:
    def __init__(self, words, a):
        self.random, self.least, self.most = random.Random(words), a.lowest_id, a.highest_id

    def take(self, count):
        return [self.random.randint(self.least, self.most) for _ in range(count)]


def few_shot(ids, divide):
    prefix = ids.take(1536)
    return [Step(ids.take(64), 16, prefix) for _ in range(64 // divide)]


def chats(ids, divide):
    system = ids.take(512)
    first = []
    for _ in range(16 // divide):
        chat = None
        for _ in range(4):  # from the last turn to the first
            chat = Step(ids.take(128), 64, then=[chat] if chat else [])
        chat.before = system
        first.append(chat)
    return first


def tree(ids, divide):
    root = ids.take(1024)

    def level(left):
        return [Step(ids.take(16), 64, then=level(left - 1)) for _ in range(4)] if left else []

    first = level(3 if divide == 1 else 2)
    for step in first:
        step.before = root
    return first


def agents(ids, divide):
    templates = [ids.take(1024) for _ in range(4)]
    chosen = ids.random.choices(range(4), [1 / k for k in range(1, 5)], k=64 // divide)
    return [Step(ids.take(256), 32, templates[t]) for t in chosen]


WORKLOADS = {"W1": few_shot, "W2": chats, "W3": tree, "W4": agents}


def tokens_once(first):
    """What computing each prefix once takes: shared beginnings once, own tokens of all, and the
    last token of the answer before each that continues one."""
    total = sum(len(before) for before in {id(s.before): s.before for s in first}.values())
    steps = list(first)
    while steps:
        step = steps.pop()
        total += len(step.own) + len(step.then)
        steps += step.then
    return total


# ---- one request ----

@dataclasses.dataclass
class Answer:
    seconds: float = 0.0
    first_token: float = 0.0
    ids: list = dataclasses.field(default_factory=list)
    tokens: int = 0
    prompt: int = 0
    cached: int = 0
    made_up: int = 0
    error: str = ""


class OpenAI:
    path = "/v1/completions"

    def body(self, prompt, count, a):
        named = {"model": a.model} if a.model else {}
        return {**named, "prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True,
                "stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}

    def read(self, chunk, answer):
        for choice in chunk.get("choices") or []:
            answer.ids += choice.get("token_ids") or []
        usage = chunk.get("usage")
        if usage:
            answer.prompt, answer.tokens = usage["prompt_tokens"], usage["completion_tokens"]
            answer.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


class SGLang:
    path = "/generate"

    def body(self, prompt, count, a):
        return {"input_ids": prompt, "stream": True,
                "sampling_params": {"max_new_tokens": count, "temperature": 0, "ignore_eos": True}}

    def read(self, chunk, answer):
        meta = chunk.get("meta_info") or {}
        answer.prompt = meta.get("prompt_tokens", answer.prompt)
        answer.cached = meta.get("cached_tokens", answer.cached)
        answer.tokens = meta.get("completion_tokens", answer.tokens)
        ids = chunk.get("output_ids") or []
        # All so far, or the new ones alone, as the server is set: completion_tokens tells which.
        answer.ids = ids if len(ids) == answer.tokens else answer.ids + ids


class LlamaCpp:
    path = "/completion"

    def body(self, prompt, count, a):
        return {"prompt": prompt, "n_predict": count, "temperature": 0, "ignore_eos": True, "stream": True,
                "cache_prompt": True, "return_tokens": True, "samplers": ["top_k"], "top_k": 1}

    def read(self, chunk, answer):
        answer.ids += chunk.get("tokens") or []
        timings = chunk.get("timings")
        if timings:
            answer.tokens, answer.cached = timings["predicted_n"], timings.get("cache_n", 0)
            answer.prompt = timings["prompt_n"] + answer.cached


STYLES = {"openai": OpenAI, "sglang": SGLang, "llamacpp": LlamaCpp}


def events(response):
    """The objects of an SSE stream."""
    for line in response:
        if line.startswith(b"data:"):
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            yield json.loads(data)


def ask(style, prompt, count, a, spare):
    """An answer, whatever happened; `spare`: ids in place of those that the server did not tell."""
    answer = Answer()
    began = time.monotonic()
    connection = http.client.HTTPConnection(a.host, a.port, timeout=a.timeout)
    try:
        connection.request("POST", style.path, json.dumps(style.body(prompt, count, a)),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"HTTP {response.status}: {response.read(300).decode(errors='replace')}")
        for chunk in events(response):
            if not answer.first_token:
                answer.first_token = time.monotonic() - began
            if "error" in chunk:
                raise RuntimeError(f"in the stream: {chunk['error']}")
            style.read(chunk, answer)
        if answer.prompt != len(prompt) or answer.tokens != count:
            raise RuntimeError(f"{answer.prompt} prompt and {answer.tokens} output tokens were counted, "
                               f"{len(prompt)} and {count} asked for")
    except Exception as error:  # a server may say anything: the request is counted, the load goes on
        answer.error = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    answer.seconds = time.monotonic() - began
    answer.made_up = max(0, count - len(answer.ids))
    answer.ids = answer.ids[:count] + spare.take(answer.made_up)
    return answer


# ---- a workload ----

def play(first, style, a):
    """All steps; returns their answers and the seconds that it took."""
    answers, lock, done = [], threading.Lock(), threading.Event()
    left = len(first)

    def run(step, before, number):
        nonlocal left
        prompt = before + step.own
        answer = ask(style, prompt, step.answer, a, Ids(f"spare {number}", a))
        with lock:
            answers.append(answer)
            left += len(step.then) - 1
            ended = left == 0
        for n, after in enumerate(step.then):
            workers.submit(run, after, prompt + answer.ids, f"{number}.{n}")
        if ended:
            done.set()

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(a.clients) as workers:
        for n, step in enumerate(first):
            workers.submit(run, step, step.before, str(n))
        done.wait()
    return answers, time.monotonic() - began


def report(name, first, answers, seconds):
    good = [x for x in answers if not x.error]
    waits = [x.first_token for x in good] or [0.0]
    tokens = sum(x.tokens for x in good)
    prompts, cached = sum(x.prompt for x in good), sum(x.cached for x in good)
    return {"workload": name, "requests": len(answers), "errors": len(answers) - len(good),
            "seconds": round(seconds, 3), "first_token_p50_s": round(statistics.median(waits), 4),
            "first_token_max_s": round(max(waits), 4), "output_tokens": tokens,
            "output_tokens_per_s": round(tokens / seconds, 1), "prompt_tokens": prompts,
            "cached": cached, "evaluated": prompts - cached, "once": tokens_once(first),
            "made_up": sum(x.made_up for x in answers),
            "first_error": next((x.error for x in answers if x.error), None)}


def words(r):
    line = (f"{r['workload']}  {r['seconds']:7.2f} s  first token {r['first_token_p50_s']:6.3f} s, at most "
            f"{r['first_token_max_s']:.3f}  {r['output_tokens_per_s']:8.1f} output tokens/s  evaluated "
            f"{r['evaluated']} of {r['prompt_tokens']} prompt tokens; {r['once']} take each prefix once")
    if r["made_up"]:
        line += f"; {r['made_up']} ids of answers made up"
    if r["errors"]:
        line += f"; {r['errors']} of {r['requests']} requests failed: {r['first_error']}"
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--style", choices=list(STYLES), default="openai")
    parser.add_argument("--model", help="the name that --style openai sends; none else")
    parser.add_argument("--workload", default=",".join(WORKLOADS), help="which, with commas (all)")
    parser.add_argument("--clients", type=int, default=16, metavar="N")
    parser.add_argument("--divide", type=int, default=1, choices=[1, 2, 4, 8, 16], metavar="N",
                        help="a shorter load: 2, 4, 8 or 16")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lowest-id", type=int, default=300, metavar="ID", help="of the ids sent (300)")
    parser.add_argument("--highest-id", type=int, default=30999, metavar="ID",
                        help="of the ids sent (30999); below the model's vocabulary")
    parser.add_argument("--timeout", type=float, default=1200, metavar="SECONDS",
                        help="without a byte, after which a request has failed (1200)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line and workload")
    a = parser.parse_args()
    names = a.workload.split(",")
    if not set(names) <= set(WORKLOADS):
        parser.error(f"--workload: {', '.join(WORKLOADS)}")
    if a.clients < 1 or not 0 <= a.lowest_id <= a.highest_id:
        parser.error("--clients is at least 1, --lowest-id at most --highest-id")
    failed = False
    for name in names:
        first = WORKLOADS[name](Ids(f"{name} {a.seed}", a), a.divide)
        r = report(name, first, *play(first, STYLES[a.style](), a))
        print(json.dumps(r) if a.json else words(r), flush=True)
        failed = failed or r["errors"] > 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
