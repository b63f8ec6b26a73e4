#!/usr/bin/env python3
"""test_tiers_cluster.py - servers over a Redis Cluster of 3 masters and 3 replicas on loopback:
a master is killed, its replica takes over, and the answers are the same throughout."""
import shutil
import tempfile
import time

from radish_e2e import HANG, STORIES, Server, check, run, skip_script
from redis_e2e import Redis, until

if not shutil.which("redis-server"):
    skip_script("no redis-server")
WORDS = "once upon a time there was a little girl who loved to play in the park with her dog ".split()
PROMPTS = [" ".join(WORDS[(i * 7 + k * (i + 3)) % len(WORDS)] for k in range(150)) for i in range(6)]


OPTIONS = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1500",
           "--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0"]


def doubt_after(nodes, ms):
    """From now on a node that is silent for so long is taken for dead."""
    for node in nodes:
        check("OK" in node.say(f"CONFIG SET cluster-node-timeout {ms}"))


def make_cluster(nodes):
    """The first three are masters, nodes[i + 3] is the replica of nodes[i]."""
    for i, node in enumerate(nodes):
        check("OK" in node.say(f"CLUSTER SET-CONFIG-EPOCH {i + 1}"))
        if i < 3:
            last = 16383 if i == 2 else i * 5461 + 5460
            check("OK" in node.say(f"CLUSTER ADDSLOTSRANGE {i * 5461} {last}"))
        if i:
            check("OK" in node.say(f"CLUSTER MEET 127.0.0.1 {nodes[0].port}"))
    until("the nodes do not meet", lambda: all(
        "cluster_known_nodes:6" in n.say("CLUSTER INFO") for n in nodes))
    for master, replica in zip(nodes[:3], nodes[3:]):
        name = master.say("CLUSTER MYID")
        until("a replica does not know its master",
              lambda r=replica, n=name: "OK" in r.say(f"CLUSTER REPLICATE {n}"))
    until("the cluster is not well", lambda: all(
        "cluster_state:ok" in n.say("CLUSTER INFO") and
        "cluster_slots_ok:16384" in n.say("CLUSTER INFO") for n in nodes) and all(
        "master_link_status:up" in n.say("INFO replication") for n in nodes[3:]))
    doubt_after(nodes, 60000)


def serve(*args):
    return Server(STORIES, "--max-total-tokens", 640, "--page-size", 16, "--context-length", 512,
                  *args)


def over(nodes):
    seeds = ",".join(f"127.0.0.1:{n.port}" for n in nodes[:2])
    return serve("--enable-hierarchical-cache", "--hicache-storage-backend", f"redis:{seeds}",
                 "--hicache-storage-prefetch-policy", "wait_complete",
                 "--hicache-storage-backend-extra-config",
                 '{"prefetch_threshold": 64, "timeout_ms": 1000}')


def ask(s, text):
    answer = s.ask("/generate", {"text": text, "sampling_params": {"temperature": 0,
                                                                   "max_new_tokens": 8}})
    return answer["output_ids"], answer["meta_info"]


def settled(s):
    while s.figures()["transfers_under_way"]:
        time.sleep(0.002)


def check_round(s, plain):
    """All prompts, with nothing in the server's own memory."""
    settled(s)
    s.ask("/flush_cache?tiers=device,host", {})
    for text, want in zip(PROMPTS, plain):
        ids, _ = ask(s, text)
        check(ids == want, ids, want)


def check_hit(nodes, plain, which):
    """A server that just came finds the prompt in the store. It does not wait longer than
    computing would take, which on a busy machine can be too short: then another one asks."""
    for _ in range(8):
        with over(nodes) as s:
            ids, meta = ask(s, PROMPTS[which])
            check(ids == plain[which], ids, plain[which])
            check(meta["cached_tokens_details"]["storage"] == meta["cached_tokens"], meta)
            settled(s)
            figures = s.wait_idle()
            check(figures["storage_bad_pages"] == 0 and figures["lost_loads"] == 0, figures)
        if meta["prompt_tokens"] - meta["cached_tokens"] <= 16:
            return
    check(False, meta)


def test_a_master_dies_and_its_replica_takes_over():
    with serve("--disable-radix-cache") as s:
        plain = [ask(s, text)[0] for text in PROMPTS]
    nodes = []
    with tempfile.TemporaryDirectory(prefix="radish-e2e-") as tmp:
        try:
            for _ in range(6):
                nodes.append(Redis(tmp, *OPTIONS))
            make_cluster(nodes)
            with over(nodes) as s:
                check_round(s, plain)
                settled(s)
                check(all(n.say("DBSIZE") != ":0\r\n" for n in nodes[:3]), "a master has no pages")
                until("a replica lacks pages", lambda: all(
                    r.say("DBSIZE") == m.say("DBSIZE") for m, r in zip(nodes, nodes[3:])))
                check_hit(nodes, plain, 0)
                doubt_after(nodes, 1500)
                nodes[0].end()
                rounds = 0
                end = time.monotonic() + HANG
                while "role:master" not in nodes[3].say("INFO replication") or not rounds:
                    check(time.monotonic() < end, "the replica does not take over")
                    check_round(s, plain)
                    rounds += 1
                until("the cluster is not well again", lambda: all(
                    "cluster_state:ok" in n.say("CLUSTER INFO") for n in nodes[1:]))
                check_round(s, plain)
                settled(s)
                figures = s.wait_idle()
                check(figures["storage_bad_pages"] == 0 and figures["lost_loads"] == 0, figures)
            check_hit(nodes[1:], plain, 1)  # a third of its pages came by the replica
        finally:
            for node in nodes:
                node.end()


run(globals())
