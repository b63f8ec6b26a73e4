#!/usr/bin/env python3
"""--device: where a model computes is said at the start, and why not on a GPU; on an emulated one it
answers as it should.

Tests run on the CPU, whatever the machine has (radish_e2e.py takes the driver's library away), but for those
that bring the emulated driver."""
import json
import pathlib
import tempfile
import time

import tiny_gguf
from radish_e2e import EMULATED, MADE, STORIES, TINY, Server, check, radish, run, skip

IDS = ("--ids", "1,5,9", "-n", "2")
NO_GPU = "no NVIDIA driver"


def test_a_gpu_that_is_asked_for_is_not_replaced():
    for command in (("generate", "-m", STORIES, *IDS), ("logits", "-m", STORIES, "--ids", "1,5"),
                    ("serve", STORIES), ("bench", STORIES, "--what", "speed"), ("info", STORIES)):
        for device in ("cuda", "cuda:1"):
            _, err = radish(*command, "--device", device, want=1)
            check(f"device {device}: " in err and NO_GPU in err, command, err)
    _, err = radish("chat", STORIES, "--device", "cuda", stdin=b"hello\n", want=1)
    check("device cuda: " in err and NO_GPU in err, err)


def test_words_that_name_no_device():
    for word in ("gpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:99999999999", "CPU", ""):
        _, err = radish("generate", "-m", STORIES, *IDS, "--device", word, want=2)
        check("--device is auto, cpu, cuda or cuda:N" in err, word, err)


def test_what_is_only_on_the_cpu_answers_the_same():
    answers = [radish("generate", "-m", STORIES, *IDS, "--json", *args)[0]
               for args in ((), ("--device", "auto"), ("--device", "cpu"))]
    check(answers[0] == answers[1] == answers[2], answers)


def test_the_server_says_where_it_computes():
    for args, asked in (((), True), (("--device", "auto"), True), (("--device", "cpu"), False)):
        with Server(STORIES, *args) as server:
            said = server.get("/server_info")
            check(said["device"] == "cpu" and "device_name" not in said, said)
            check(("computes on the CPU: " in server.banner) == asked, args, server.banner)
            check((NO_GPU in said.get("why_no_gpu", "")) == asked, args, said)
            check("gpu_memory_total_bytes" in said["internal_states"][0], said)
            body = server.metrics()
            check('radish_device_info{model_name="' in body and ',device="cpu",device_name=""} 1'
                  in body, body[-500:])
            check("gpu_memory" not in body)


def test_info_says_where_it_would():
    told = json.loads(radish("info", TINY, "--json")[0])["memory"]["server"]
    check(told["device"] == "cpu" and NO_GPU in told["why_no_gpu"] and not told["device_bytes"],
          told)
    words, _ = radish("info", TINY)
    check("\ndevice cpu: " in words, words[:1500])
    words, _ = radish("info", TINY, "--device", "cpu")
    check("\ndevice cpu" not in words, words[:1500])


# ---- over the emulated driver ----

PARIS = ("--chat", "-p", "What is the capital of France?")


def gpu(words=""):
    """The environment of a machine with an emulated GPU."""
    if not EMULATED.exists():
        skip(f"{EMULATED} is not there")
    return {"RADISH_LIBCUDA": str(EMULATED), "RADISH_FAKE_CUDA": words}


def test_a_gpu_answers():
    answer, _ = radish("generate", "-m", TINY, "--device", "cuda", *PARIS, env=gpu("capability=80"))
    check(answer == "Paris.\n", answer)


def test_quantised_weights_stay_so_on_a_gpu():
    there, kept = gpu("capability=80"), {}
    for dtype in ("bf16", "q8_0"):
        told = json.loads(radish("info", TINY, "--json", "--dtype", dtype, "--device", "cuda", env=there)[0])
        memory = told["memory"]
        check(list(memory["matrices"]) == [dtype] and memory["server"]["device"] == "cuda:0", memory)
        kept[dtype] = memory["matrices"][dtype]
    check(kept["q8_0"] < 0.6 * kept["bf16"], kept)
    answer, err = radish("generate", "-m", TINY, "--device", "cuda", "--dtype", "q8_0", "--log-level", "info", *PARIS,
                         env=there)
    check(answer == "Paris.\n" and "MB of weights (q8_0) in " in err, answer, err)


def test_what_a_gpu_lacks_is_refused_or_computed_on_the_cpu():
    there = gpu()
    with tempfile.TemporaryDirectory(prefix="radish-device-") as tmp:
        hybrid = pathlib.Path(tmp) / "m.gguf"
        tiny_gguf.write(hybrid, tiny_gguf.SPECS["lfm2"])
        for model, args, wanted in ((TINY, ("--dtype", "f32"), "f32"), (hybrid, (), "recurrent layers")):
            _, err = radish("generate", "-m", model, *IDS, "--device", "cuda", *args, want=1, env=there)
            check("device cuda: " in err and wanted in err, model, args, err)
            _, err = radish("generate", "-m", model, *IDS, "--log-level", "info", *args, env=there)
            check("not on a GPU: " in err and wanted in err, model, args, err)
        for args, wanted in ((("--kv-cache-dtype", "int8"), "K and V"), (("--attn-ref",), "attn-ref")):
            _, err = radish("serve", TINY, "--device", "cuda", *args, want=1, env=there)
            check("device cuda: " in err and wanted in err, args, err)


def test_gpus_that_cannot_be_used():
    for words, device, wanted in (("capability=75", "cuda", "sm_80"), ("driver=11030", "cuda", "too old"),
                                  ("devices=0", "cuda", "no GPU"), ("", "cuda:3", "no GPU 3"),
                                  ("memory=20000000", "cuda", "does not fit on the GPU")):
        _, err = radish("generate", "-m", TINY, *IDS, "--device", device, want=1, env=gpu(words))
        check(f"device {device}: " in err and wanted in err, words, err)
        if device == "cuda":
            answer, err = radish("generate", "-m", TINY, *PARIS, "--log-level", "info", env=gpu(words))
            check("not on a GPU: " in err and wanted in err and answer == "Paris.\n", words, err)


def test_a_server_on_a_gpu():
    """It says so, in words and figures; a second request's prefix is found, and comes back from pinned
    memory when the pool is too small for two."""
    there = gpu("memory=300000000")
    told = json.loads(radish("info", TINY, "--json", env=there)[0])["memory"]["server"]
    check(told["device"] == "cuda:0" and told["device_name"].startswith("emulated GPU"), told)
    with Server(TINY, "--enable-hierarchical-cache", "--max-running-requests", "4", "--context-length", "256",
                "--mem-fraction-static", "0.5", env=there) as server:
        said = server.get("/server_info")
        check(said["device"] == "cuda:0" and said["device_name"] == told["device_name"], said)
        check("attention cuda-sm90" in said["guarantee"] and said["threads"] == 0, said)
        check("emulated GPU (sm_90) (cuda:0)) on http" in server.banner, server.banner)
        check("GPU memory 0.3 GB" in server.banner, server.banner)
        figures = said["internal_states"][0]
        free, total = figures["gpu_memory_free_bytes"], figures["gpu_memory_total_bytes"]
        check(0 < free < total == 300000000, figures)
        pool = said["max_total_num_tokens"] * said["kv_bytes_per_token"]
        check(0.4 * total < total - free <= 0.55 * total and pool < 0.5 * total, pool, figures)
        text = server.metrics()
        check(',device="cuda:0",device_name="emulated GPU (sm_90)"} 1' in text, text[-400:])
        check('radish_gpu_memory_bytes{model_name="radish-tiny",kind="total"} 300000000' in text, text[-900:])
        question = {"messages": [{"role": "user", "content": "What is the capital of France?"}],
                    "temperature": 0, "max_tokens": 4}
        cached = []
        for _ in range(2):
            answer = server.ask("/v1/chat/completions", question)
            check(answer["choices"][0]["message"]["content"] == "Paris.", answer)
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        check(cached[0] == 0 and cached[1] > 5, cached)
        check(server.ask("/flush_cache?tiers=device&timeout=60", {})["status"], "flush")
        answer = server.ask("/v1/chat/completions", question)
        check(answer["choices"][0]["message"]["content"] == "Paris.", answer)
        check(server.figures()["loaded_tokens"] > 5, server.figures())


def test_k_and_v_of_fp8_on_a_gpu():
    """Half of bf16's bytes a token; what a host tier and a store give back is what was computed, and a store's
    pages are for the type that they were written in."""
    there, kept = gpu("capability=90"), {}
    for dtype in ("bf16", "fp8_e4m3", "fp8_e5m2"):
        told = json.loads(radish("info", TINY, "--json", "--kv-cache-dtype", dtype, "--device", "cuda", env=there)[0])
        server = told["memory"]["server"]
        check(server["device"] == "cuda:0" and told["memory"]["kv_cache_dtype"] == dtype, told)
        kept[dtype] = told["memory"]["kv_bytes"]
    check(kept["fp8_e4m3"] == kept["fp8_e5m2"] == kept["bf16"] / 2, kept)
    ids = [5 + i % 200 for i in range(40)]
    with tempfile.TemporaryDirectory(prefix="radish-device-") as tmp:
        answers, fetched = [], []
        for dtype in ("fp8_e4m3", "fp8_e5m2", "fp8_e4m3"):
            with Server(MADE / "tiny-qwen3-bf16.gguf", "--device", "cuda", "--kv-cache-dtype", dtype,
                        "--enable-hierarchical-cache", "--max-total-tokens", "512", "--page-size", "16",
                        "--context-length", "256", "--max-running-requests", "2", "--hicache-storage-backend",
                        f"file:{tmp}", "--hicache-prefetch-threshold", "16", "--hicache-storage-prefetch-policy",
                        "wait_complete", env=there) as server:
                said = server.get("/server_info")
                check(said["kv_cache_dtype"] == dtype and f"{dtype} KV" in said["guarantee"], said)
                wanted = {"input_ids": ids, "sampling_params": {"max_new_tokens": 8, "temperature": 0}}
                answers.append(server.ask("/generate", wanted)["output_ids"])
                fetched.append(server.figures()["fetched_tokens"])
                check(server.ask("/flush_cache?tiers=device&timeout=60", {})["status"], "flush")
                check(server.ask("/generate", wanted)["output_ids"] == answers[-1], answers)
                check(server.figures()["loaded_tokens"] >= 32, server.figures())
        check(answers[0] == answers[2] and fetched == [0, 0, 32], answers, fetched)


def test_windows_have_memory_of_their_own_on_a_gpu():
    """A gemma2 whose layers, half of them, see 40 tokens: the same answer in window memory and by a mask."""
    ids, said = [(i * i * 31 + i) % 250 for i in range(150)], []
    with tempfile.TemporaryDirectory(prefix="radish-device-") as tmp:
        model = pathlib.Path(tmp) / "m.gguf"
        tiny_gguf.write(model, {**tiny_gguf.SPECS["gemma2"], "layers": 2, "context": 1024})
        for args in ((), ("--disable-hybrid-swa-memory",)):
            with Server(model, "--device", "cuda", "--max-total-tokens", "400", "--chunked-prefill-size", "32",
                        "--max-running-requests", "2", *args, env=gpu("capability=80")) as server:
                told = server.get("/server_info")
                window = told.get("swa_max_total_num_tokens", 0)
                check(window == 0 if args else 40 < window < 400, args, told)
                answer = server.ask("/generate", {"input_ids": ids, "sampling_params": {
                    "max_new_tokens": 8, "temperature": 0, "ignore_eos": True}})
                said.append(answer["output_ids"])
    check(len(said[0]) == 8 and said[0] == said[1], said)


def test_mixtures_of_experts_on_a_gpu():
    """What a hit, the host tier and fewer neighbours answer is what was computed, and a cold prefill of it (--verify)
    has the same bits."""
    ids = [(i * i * 31 + i) % 250 for i in range(60)]
    with tempfile.TemporaryDirectory(prefix="radish-device-") as tmp:
        model = pathlib.Path(tmp) / "m.gguf"
        for arch, dtype, words in (("qwen3moe", "bf16", "capability=90"), ("gpt-oss", "q8_0", "capability=80")):
            tiny_gguf.write(model, {**tiny_gguf.SPECS[arch], "layers": 2, "hd": 32})
            with Server(model, "--device", "cuda", "--dtype", dtype, "--enable-hierarchical-cache", "--verify", "1",
                        "--max-total-tokens", "512", "--page-size", "16", "--context-length", "256",
                        "--max-running-requests", "3", env=gpu(words)) as server:
                said = server.get("/server_info")
                check(f"{dtype} weights" in said["guarantee"] and said["device"] == "cuda:0", said)
                wanted = {"input_ids": ids, "sampling_params": {"max_new_tokens": 8, "temperature": 0,
                                                                "ignore_eos": True}}
                first = server.ask("/generate", wanted)
                crowd = server.ask("/generate", {**wanted, "input_ids": [ids, ids[::-1], ids[:20]]})
                check(server.ask("/flush_cache?tiers=device&timeout=60", {})["status"], "flush")
                last = server.ask("/generate", wanted)
                check(len(first["output_ids"]) == 8, first)
                check(first["output_ids"] == crowd[0]["output_ids"] == last["output_ids"], first, crowd, last)
                check(crowd[0]["meta_info"]["cached_tokens"] >= 48 > first["meta_info"]["cached_tokens"], crowd)
                figures = server.figures()
                check(figures["loaded_tokens"] >= 48, figures)
                until = time.monotonic() + 60
                while server.figures()["verify_pending"] and time.monotonic() < until:
                    time.sleep(0.01)
                figures = server.figures()
                check(figures["verify_requests"] >= 2 and not figures["verify_mismatches"], figures)


def test_sessions_keep_rows_of_a_gpu():
    """More sessions than requests run at one time: each keeps a row of slots between its turns."""
    ids = [5 + i % 200 for i in range(20)]
    with Server(MADE / "tiny-qwen3-bf16.gguf", "--device", "cuda", "--enable-streaming-session", "--max-total-tokens",
                "512", "--context-length", "128", "--max-running-requests", "2", env=gpu("capability=80")) as server:
        wanted = {"input_ids": ids, "sampling_params": {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}}
        right = server.ask("/generate", wanted)["output_ids"]
        for _ in range(4):
            session = server.ask("/open_session", {"capacity_of_str_len": 100, "streaming": True})
            answer = server.ask("/generate", {**wanted, "session_params": {"id": session}})
            check(answer["output_ids"] == right, answer, right)
        check(server.figures()["sessions_held"] == 4, server.figures())


def test_pages_of_a_gpu_are_nobody_elses():
    """A store that a GPU of sm_80 has filled has nothing for one of sm_90, nor for the CPU; for one of
    sm_80 it has."""
    ids = [5 + i % 200 for i in range(40)]
    model = MADE / "tiny-qwen3-bf16.gguf"
    with tempfile.TemporaryDirectory(prefix="radish-device-") as tmp:
        found = []
        for words, device in (("capability=80", "cuda"), ("capability=90", "cuda"), ("", "cpu"),
                              ("capability=80", "cuda")):
            with Server(
                    model, "--device", device, "--enable-hierarchical-cache", "--max-total-tokens", "512",
                    "--page-size", "16", "--context-length", "256", "--max-running-requests", "2",
                    "--hicache-storage-backend", f"file:{tmp}", "--hicache-prefetch-threshold", "16",
                    "--hicache-storage-prefetch-policy", "wait_complete", env=gpu(words)) as server:
                server.ask("/generate", {"input_ids": ids, "sampling_params": {"max_new_tokens": 1}})
                found.append(server.figures()["fetched_tokens"])
        check(found[:3] == [0, 0, 0] and found[3] == 32, found)


run(globals())
