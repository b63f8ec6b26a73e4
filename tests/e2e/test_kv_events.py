#!/usr/bin/env python3
"""test_kv_events.py - whoever follows a server's KV events knows what is cached: under a load that
evicts and that moves pages between the tiers, with frames that are lost, replays, and restarts of the
one who follows.

The batches are read with Debian's msgpack and ZeroMQ for Python, which know nothing of ours;
examples/kv_events_consumer.c does the same in C, and throws frames away.
"""
import hashlib
import json
import pathlib
import struct
import subprocess
import tempfile
import threading
import time

from radish_e2e import HANG, RADISH, STORIES, Server, check, radish, run, skip_script

CONFIG = {"publisher": "zmq", "endpoint": "tcp://127.0.0.1:*", "replay_endpoint": "tcp://127.0.0.1:*"}

if "without ZeroMQ" in radish("serve", STORIES, "--kv-events-config", json.dumps({**CONFIG, "topic": "x" * 300}),
                              want=1)[1]:
    skip_script("this build has no libzmq")
try:
    import msgpack
    import zmq
except ImportError as error:
    skip_script(f"python3-zmq or python3-msgpack is missing: {error}")

CONSUMER = pathlib.Path(RADISH).parent / "examples/kv_events_consumer"
WORDS = "once upon a time there was a little girl who loved to play in the park with her dog ".split()
TIERS = ("--max-total-tokens", 640, "--page-size", 16, "--context-length", 512, "--enable-hierarchical-cache",
         "--hicache-ratio", 3)


def serve(*args, **config):
    return Server(STORIES, "--kv-events-config", json.dumps({**CONFIG, **config}), *args)


def prompt(i, words=150):
    return " ".join(WORDS[(i * 7 + k * (i + 3)) % len(WORDS)] for k in range(words))


def ask(s, text, **more):
    return s.ask("/generate", {"text": text, "sampling_params": {"temperature": 0, "max_new_tokens": 8}, **more})


def settle(s):
    until = time.monotonic() + HANG
    while s.figures()["transfers_under_way"]:
        check(time.monotonic() < until, "transfers do not end")


class Peer:
    """An index from the frames alone; every event is held against what was told before."""

    def __init__(self, s):
        self.where = s.get("/server_info")["kv_events"]
        self.context = zmq.Context()
        self.live = self.context.socket(zmq.SUB)
        self.live.subscribe(b"")
        self.live.connect(self.where["endpoint"])
        self.replay = self.context.socket(zmq.DEALER)
        self.replay.connect(self.where["replay_endpoint"])
        self.blocks, self.tokens, self.salts, self.kinds = {}, {}, {}, set()
        self.next_seq = 0

    def take(self, seq, payload):
        check(seq == self.next_seq, "number", seq, "wanted", self.next_seq)
        self.next_seq += 1
        stamp, events, rank = msgpack.unpackb(payload)
        check(abs(stamp - time.time()) < 3600 and rank == self.where["data_parallel_rank"], stamp, rank)
        for event in events:
            self.event(event)

    def event(self, event):
        if isinstance(event, dict):
            kind, fields = event["type"], event
        else:
            kind = event[0]
            names = {"BlockStored": ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"],
                     "BlockRemoved": ["block_hashes", "medium"], "AllBlocksCleared": []}[kind]
            check(len(event) - 1 in (len(names), 7), event)
            fields = dict(zip(names, event[1:]))
            if kind == "BlockStored" and len(event) == 8:
                fields.update(event[7])
        self.kinds.add((kind, fields.get("medium")))
        if kind == "AllBlocksCleared":
            self.blocks = {}
            return
        held = self.blocks.setdefault(fields["medium"], set())
        hashes = fields["block_hashes"]
        check(hashes, event)
        if kind == "BlockRemoved":
            check(held.issuperset(hashes), "removed, and never stored", event)
            held.difference_update(hashes)
            return
        parent, size, tokens = fields["parent_block_hash"], fields["block_size"], fields["token_ids"]
        check(size == self.where["block_size"] and len(tokens) == size * len(hashes), event)
        check(fields["lora_id"] is None, event)
        for i, block in enumerate(hashes):
            if fields["medium"] == "GPU":
                check(parent is None or parent in held, "a parent that nobody knows", event)
            self.tokens[block] = (parent, tokens[i * size:(i + 1) * size])
            self.salts[block] = fields.get("cache_salt")
            held.add(block)
            parent = block

    def ask(self, start=None):
        """Everything from there on; returns what came, in order."""
        self.replay.send_multipart([b"", struct.pack(">Q", self.next_seq if start is None else start)])
        came = []
        while True:
            check(self.replay.poll(HANG * 1000), "no replay")
            *head, number, payload = self.replay.recv_multipart()
            check(head[0] == b"" and len(number) == 8, head, number)
            if number == b"\xff" * 8:
                check(payload == b"", payload)
                return came
            came.append((struct.unpack(">Q", number)[0], payload, head[1:]))

    def catch_up(self, until):
        """What was missed, then what came."""
        for seq, payload, _ in self.ask():
            if seq >= self.next_seq:
                self.take(seq, payload)
        while self.next_seq < until:
            check(self.live.poll(HANG * 1000), "silence at", self.next_seq, "of", until)
            topic, number, payload = self.live.recv_multipart()
            check(topic == self.where["topic"].encode() and len(number) == 8, topic, number)
            if struct.unpack(">Q", number)[0] >= self.next_seq:
                self.take(struct.unpack(">Q", number)[0], payload)

    def close(self):
        self.live.close(0)
        self.replay.close(0)
        self.context.term()


class Follower:
    """examples/kv_events_consumer."""

    def __init__(self, s, *args):
        where = s.get("/server_info")["kv_events"]
        self.process = subprocess.Popen([str(CONSUMER), where["endpoint"], where["replay_endpoint"], *map(str, args)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def index(self, until):
        self.process.stdin.write(f"{until}\n".encode())
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        check(self.process.wait(HANG) == 0, self.process.returncode)
        self.process.stdout.close()


def same_blocks(server, other):
    """On the device and the host what the server has; of a store, which is in no tree, at least that."""
    for medium in ("GPU", "CPU_PINNED"):
        mine, its = set(server.get(medium, [])), set(other.get(medium, []))
        check(mine == its, medium, len(mine), "blocks, and the follower has", len(its))
    for medium in ("DISK", "EXTERNAL"):
        check(set(server.get(medium, [])) <= set(other.get(medium, [])), medium)


def event_hash(parent_digest, tokens):
    digest = hashlib.sha256(parent_digest + struct.pack(f"<{len(tokens)}I", *tokens)).digest()
    return digest, struct.unpack(">q", digest[:8])[0]


def test_followers_that_lose_frames_know_what_is_cached():
    with tempfile.TemporaryDirectory(prefix="radish-e2e-") as tmp:
        with serve(*TIERS, "--hicache-storage-backend", f"file:{tmp}", topic="kv@here@story") as s:
            careful, careless = Peer(s), Follower(s, "--lose", 3)

            def load(first):
                for i in range(8):
                    ask(s, prompt((first + 3 * i) % 9), **({"cache_salt": "secret"} if i == 5 else {}))

            clients = [threading.Thread(target=load, args=(i,)) for i in range(3)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            s.wait_idle()
            settle(s)
            late = Follower(s)
            dump = s.get("/kv_events")
            careful.catch_up(dump["next_seq"])
            same_blocks(dump["blocks"], careful.blocks)
            for medium in ("GPU", "CPU_PINNED", "DISK"):
                check(("BlockStored", medium) in careful.kinds, careful.kinds)
                check(dump["blocks"].get(medium), medium, dump)
            check(("BlockRemoved", "GPU") in careful.kinds, careful.kinds)
            for follower in (careless, late):
                index = follower.index(dump["next_seq"])
                check(index["next_seq"] >= dump["next_seq"], index["next_seq"], dump["next_seq"])
                same_blocks(dump["blocks"], index["blocks"])
                check(index["checked"] > 0 and index["wrong"] == 0, index["checked"], index["wrong"])
                check((index["lost"] > 0) == (follower is careless), index["lost"])
            s.ask("/flush_cache?tiers=device,host", {})
            dump = s.get("/kv_events")
            careful.catch_up(dump["next_seq"])
            check(not dump["blocks"].get("GPU") and not careful.blocks.get("GPU"), dump)
            index = careless.index(dump["next_seq"])["blocks"]
            check(not index["GPU"] and not index["CPU_PINNED"], index)
            metrics = s.metrics()
            check("radish_kv_event_dropped_batches_total" in metrics and "radish_kv_event_replays_total" in metrics)
            careful.close()
            careless.close()
            late.close()


def test_hashes_are_sglangs_and_namespaces_are_apart():
    with serve("--page-size", 4, data_parallel_rank=3) as s:
        peer = Peer(s)
        ids = list(range(5, 17))
        s.ask("/generate", {"input_ids": ids, "sampling_params": {"max_new_tokens": 1}})
        s.ask("/generate", {"input_ids": ids, "cache_salt": "a secret", "sampling_params": {"max_new_tokens": 1}})
        dump = s.get("/kv_events")
        peer.catch_up(dump["next_seq"])
        check(dump["data_parallel_rank"] == 3 and peer.where["dp_size"] == 1, dump)
        digest, parent = b"", None
        for i in range(0, 12, 4):
            digest, block = event_hash(digest, ids[i:i + 4])
            check(peer.tokens.get(block) == (parent, ids[i:i + 4]), block, peer.tokens)
            check(peer.salts[block] is None)
            parent = block
        part = b"\1" + struct.pack("<I", 8) + b"a secret"
        seed = hashlib.sha256(b"radish-page-hash-v1\0" + b"\0" + part).digest()
        digest, parent = seed, None
        for i in range(0, 12, 4):
            digest, block = event_hash(digest, ids[i:i + 4])
            check(peer.tokens.get(block) == (parent, ids[i:i + 4]), block, peer.tokens)
            check(peer.salts[block] == seed[:8].hex(), peer.salts[block])
            parent = block
        same_blocks(dump["blocks"], peer.blocks)
        peer.close()


def test_what_is_gone_is_told_anew():
    with serve(*TIERS, buffer_steps=2, event_format="map", replay_topic=True, topic="t") as s:
        for i in range(4):
            ask(s, prompt(i))
        settle(s)
        peer = Peer(s)
        came = peer.ask(0)  # of which the first are gone
        check(0 < len(came) <= 2 and came[0][0] > 0, [seq for seq, _, _ in came])
        check(all(head == [b"t"] for _, _, head in came), came)
        until = time.monotonic() + HANG
        while not s.figures()["kv_event_restatements"]:
            check(time.monotonic() < until, "nothing is told anew")
        late = Follower(s)
        dump = s.get("/kv_events")
        peer.next_seq = came[-1][0] + 1
        peer.catch_up(dump["next_seq"])
        check(("AllBlocksCleared", None) in peer.kinds, peer.kinds)
        same_blocks(dump["blocks"], peer.blocks)
        same_blocks(dump["blocks"], late.index(dump["next_seq"])["blocks"])
        for junk in ([b"junk"], [b"", b"12"], [b"", b"1" * 8, b"more"], [b"x" * 900]):
            peer.replay.send_multipart(junk)
        check(peer.ask(peer.next_seq) == [])
        peer.close()
        late.close()


def test_configurations_that_cannot_work_are_refused_in_words():
    for config, words in (("[]", "is a JSON object"), ('{"endpont": "x"}', "there is no key 'endpont'"),
                          ('{"publisher": "kafka"}', "'publisher' is zmq or null"),
                          ('{"endpoint": "http://x"}', "'endpoint' is like tcp://"),
                          ('{"buffer_steps": 0}', "'buffer_steps' is a number from 1"),
                          ('{"endpoint": "tcp://127.0.0.1:x", "data_parallel_rank": 1}', "'endpoint' is like tcp"),
                          ('{"endpoint": "tcp://*:65535", "data_parallel_rank": 1}', "cannot be added to"),
                          ('{"endpoint": "tcp://192.0.2.1:5557", "bind": true}', "cannot bind tcp://192.0.2.1:5557: "),
                          ('{"endpoint": "tcp://*:99999"}', "'endpoint' is like tcp://")):
        said = radish("serve", STORIES, "--port", 0, "--max-total-tokens", 512, "--kv-events-config", config, want=1)[1]
        check(words in said, config, said)
    check("nothing is cached" in radish("serve", STORIES, "--disable-radix-cache", "--kv-events-config", "{}",
                                        want=1)[1])
    with serve(publisher="null") as s:
        check("kv_events" not in s.get("/server_info"))
        check(s.raw("GET", "/kv_events")[0].status == 404)


run(globals())
