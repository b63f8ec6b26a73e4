#!/usr/bin/env python3
"""toy_engine.py - an engine of some 60 lines that serves two requests from a shared prefix.

Its "model" keeps one number per slot where a real one keeps K and V: a hash of the token and of the
number before it. So every number depends on the whole prefix, as attention makes it, and a slot that
is reused wrongly changes the answer. Needs python3-numpy."""
import sys

import numpy as np
import radish

PAGE, PAGES, ROWS, LONGEST = 16, 64, 4, 512


class ToyEngine:
    def __init__(self):
        self.kv = radish.KVAllocator(PAGES, PAGE)
        self.rows = radish.ReqToTokenPool(ROWS, LONGEST)
        self.cache = radish.RadixCache(kv_allocator=self.kv, req_to_token_pool=self.rows)
        self.memory = np.zeros((PAGES + 1) * PAGE, np.uint64)  # the "K/V", by slot; page 0 is a dummy
        self.computed = 0

    def forward(self, req):
        """Computes what has slots and no numbers yet; returns the token that follows."""
        tokens, slots = np.asarray(req.tokens), np.asarray(req.slots)  # no copy of the row
        for at in range(req.committed_len, len(req)):
            before = int(self.memory[slots[at - 1]]) if at else 17
            self.memory[slots[at]] = (before + int(tokens[at]) + 1) * 6364136223846793005 % 2**64
            self.computed += 1
        req.committed_len = len(req)  # only now may others read it
        return int(self.memory[slots[len(req) - 1]]) >> 48

    def generate(self, prompt, count):
        """`count` tokens behind the prompt, and how many of the prompt were found."""
        req = radish.Request(prompt)
        match = self.cache.admit(req)  # a row, what is cached into it, a lock
        if match is None:
            raise RuntimeError("all rows are in use: a real engine lets the request wait")
        try:
            for step in range(count):
                if not self.cache.extend(req):  # slots for what has none, evicting if need be
                    raise RuntimeError("no room even after evicting: a real engine retracts")
                token = self.forward(req)
                if step == 0:
                    self.cache.unfinished_req(req)  # others share the prompt from here on
                req.append(token)
            return req.tokens.tolist()[len(prompt):], match.prefix_tokens
        finally:
            self.cache.finished_req(req)  # the one exit, whatever happened


def main():
    engine = ToyEngine()
    system = np.arange(200, dtype=np.int64)
    prompts = [np.concatenate([system, 1000 * user + np.arange(40)]) for user in (1, 2)]
    first, cached_first = engine.generate(prompts[0], 32)
    before = engine.computed
    second, cached_second = engine.generate(prompts[1], 32)
    print(f"first request: {cached_first} of 240 prompt tokens cached")
    print(f"second request: {cached_second} of 240, {engine.computed - before} tokens computed")

    alone = ToyEngine().generate(prompts[1], 32)[0]  # the cache never changes an answer
    engine.cache.check_ownership()  # free + cached + held == all, slot by slot
    right = (cached_first, cached_second) == (0, 192) and second == alone and first != second
    print("answers", "unchanged" if right else "WRONG")
    return not right


if __name__ == "__main__":
    sys.exit(main())
