#!/usr/bin/env python3
"""Sessions over HTTP: turns that go on from token ids, with a real model and with one that plays a script."""
import time

from double import Double
from radish_e2e import STORIES, Server, check, run, story_golden

IDS = [1] + story_golden()[0]["greedy_ids"]
F32 = ("--dtype", "f32", "--threads", "2")
IN, OUT = 7, 5


def generate(s, ids, out=OUT, want=200, **more):
    return s.ask("/generate", {"input_ids": ids, **more, "sampling_params": {
        "max_new_tokens": out, "temperature": 0, "ignore_eos": True}}, want)


def take_turn(s, session, ids, before=None, out=OUT, want=200, **params):
    params = {"id": session, **({"rid": before} if before else {}), **params}
    return generate(s, ids, out, want, session_params=params)


def told(answer):
    return answer["meta_info"]["cache_explanation"]["session"]


def ten_turns(s, session, page, streaming, turns=10):
    """The history; every answer is what a prompt of its own gets, and only what is new is computed."""
    history, before = [], None
    for turn in range(turns):
        own = IDS[turn * IN:(turn + 1) * IN] if turn else IDS[:40]
        answer = take_turn(s, session, own, before)
        meta = answer["meta_info"]
        known = max(len(history) - 1, 0)  # K and V of the last output were never computed
        if not streaming:
            known = known // page * page
        check(meta["cached_tokens"] == known, turn, meta, known)
        check(meta["prompt_tokens"] == len(history) + len(own), meta)
        check(told(answer)["step"] == ("append" if turn else "begin"), answer)
        history += own
        alone = generate(s, history, cache_salt=f"alone {session}")
        check(alone["output_ids"] == answer["output_ids"], turn, alone, answer)
        history += answer["output_ids"]
        before = meta["id"]
    return history, before


def owned(s):
    """Every slot is free, cached, or an idle session's, whose first prompt is locked in the cache."""
    while (figures := s.figures()).get("transfers_under_way"):
        time.sleep(0.002)
    check(not figures["num_running_reqs"] and not figures["num_queue_reqs"], figures)
    cached = figures["evictable_tokens"] + figures["protected_tokens"]
    check(figures["available_tokens"] + cached == figures["max_total_num_tokens"], figures)
    check(figures["held_tokens"] == 0 and figures["self_check_violations"] == 0, figures)
    return figures


def test_ten_turns_compute_what_is_new():
    for page, streaming in ((1, False), (16, False), (16, True)):
        more = ["--enable-streaming-session"] if streaming else []
        with Server(STORIES, *F32, "--max-total-tokens", 2048, "--page-size", page, *more) as s:
            info = s.get("/server_info")
            check(info["max_sessions"] == 256 and info["enable_streaming_session"] == streaming, info)
            session = s.ask("/open_session", {"capacity_of_str_len": 100, "streaming": streaming})
            history, last = ten_turns(s, session, page, streaming)
            figures = owned(s)
            check(figures["sessions_open"] == figures["sessions_held"] == 1, figures)
            if not streaming:
                branch = take_turn(s, session, IDS[1:9], last, offset=33)
                check(branch["meta_info"]["cached_tokens"] >= 33 // page * page, branch)
                check(told(branch)["left_tokens"] == len(history) - 33, branch)
                alone = generate(s, history[:33] + IDS[1:9], cache_salt="branch")
                check(branch["output_ids"] == alone["output_ids"], branch, alone)
            error = s.ask("/generate", {"text": "", "session_params": {"id": session}}, 400)["error"]
            check(error["param"] == "text" and "empty" in error["message"], error)
            s.ask("/close_session", {"session_id": session})
            after = s.wait_idle()  # every slot is free or cached: none is the session's
            check(after["sessions_open"] == after["sessions_held"] == 0, after)
            check(not streaming or after["available_tokens"] > figures["available_tokens"], after)
            take_turn(s, session, [5], want=400)

            idle = s.ask("/open_session", {"timeout": 0.3, "streaming": streaming})
            take_turn(s, idle, IDS[:30], out=40)
            while s.figures()["sessions_open"]:
                time.sleep(0.002)
            after = s.wait_idle()
            check(after["sessions_held"] == 0 and after["self_check_violations"] == 0, after)


def test_pressure_drops_pages_and_blocks_nobody():
    """With tiers below, and pins; and with sessions that keep all they have."""
    for streaming, more in ((False, "--enable-hierarchical-cache"), (True, "--enable-streaming-session")):
        with Server(STORIES, *F32, "--max-total-tokens", 640, "--page-size", 16, more) as s:
            names = [s.ask("/open_session", {"streaming": streaming}) for _ in range(3)]
            history, before = {n: [] for n in names}, {}
            for turn in range(3):
                for i, name in enumerate(names):
                    own = IDS[i + turn:][:90]
                    answer = take_turn(s, name, own, before.get(name), out=8)
                    if turn == 2:  # not before: it takes room, too
                        alone = generate(s, history[name] + own, out=8, cache_salt=str(i))
                        check(answer["output_ids"] == alone["output_ids"], turn, i)
                    history[name] += own + answer["output_ids"]
                    before[name] = answer["meta_info"]["id"]
                if turn == 1:
                    s.ask("/pin_prefix", {"token_ids": history[names[0]]})
            figures = owned(s)
            check(figures["evicted_tokens"] > 0 and figures["sessions_open"] == 3, figures)
            check(streaming or figures["loaded_tokens"] > 0, figures)  # a lower tier had kept some
            for name in names:
                s.ask("/close_session", {"session_id": name})
            check(s.wait_idle()["sessions_open"] == 0)


TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
# it writes calls in its own way, and so what the model wrote is not what it renders
TEMPLATE = ("{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
            "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}"
            "<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
CALL = '<tool_call>{"name":"look",   "arguments":{"at" :1}}</tool_call>'
RULES = [{"when": "Five.<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n", "say": "Yes."},
         {"when": CALL + "<|im_end|>\n<|im_start|>tool\nIt is 5.<|im_end|>\n<|im_start|>assistant\n",
          "say": "Five."},
         {"when": "<|im_start|>user\nLook.", "unless": "tool\n", "say": CALL},
         {"say": "lost"}]


def test_a_call_that_a_template_renders_otherwise_breaks_nothing():
    with Double(RULES, template=TEMPLATE) as d:
        session = d.ask("/open_session", {})
        first = d.chat("Look.", tools=TOOLS, session_params={"id": session})
        call = first["choices"][0]["message"]["tool_calls"][0]
        check(call["function"]["name"] == "look", first)
        result = {"role": "tool", "tool_call_id": call["id"], "content": "It is 5."}
        second = d.chat([result], tools=TOOLS, session_params={"id": session, "rid": first["id"]})
        check(second["choices"][0]["message"]["content"] == "Five.", second)
        usage = second["usage"]["prompt_tokens_details"]
        check(usage["cached_tokens"] == first["usage"]["total_tokens"] - 1, usage, first)
        check(usage["cache_explanation"]["session"]["step"] == "append", usage)
        third = d.chat("Sure?", session_params={"id": session, "rid": second["id"]})
        check(third["choices"][0]["message"]["content"] == "Yes.", third)


if __name__ == "__main__":
    run(globals())
