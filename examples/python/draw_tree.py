#!/usr/bin/env python3
"""draw_tree.py - draws a cache's tree after each step of a small story.

A page is a box of its slots; [] marks what a running request holds. Everything comes from walk(),
stats() and explain(): an engine can draw its own cache so."""
import sys

import radish

WORDS = "<s> You are a helpful assistant . Hi there ! What is the time ? capital of France".split()


def text(tokens):
    return " ".join(WORDS[t] for t in tokens)


def draw(cache, title):
    print(f"\n-- {title}: {cache.total_size} tokens cached, {cache.protected_size} in use")
    for node in cache.walk():  # parents first
        slots = node.slots.tolist()
        pages = [slots[i:i + cache.page_size] for i in range(0, len(slots), cache.page_size)]
        boxes = " ".join("|" + " ".join(f"{s:2}" for s in page) + "|" for page in pages)
        locks = f"  [{node.lock_ref}]" if node.lock_ref else ""
        print(f"{'    ' * (node.depth - 1)}+- {text(node.tokens)}{locks}\n{'    ' * node.depth}{boxes}")


def main():
    cache = radish.RadixCache(page_size=2, free_list=20, explain_pages=50)
    free = list(range(1, 20))

    def serve(sentence):
        tokens = [WORDS.index(word) for word in sentence.split()]
        tokens = tokens[:len(tokens) // 2 * 2]
        match = cache.match_prefix(tokens, "int32")
        pages = [free.pop(0) for _ in range((len(tokens) - match.prefix_tokens) // 2)]
        slots = match.slots.tolist() + [2 * page + i for page in pages for i in range(2)]
        return tokens, cache.insert(tokens, slots).node

    system = "<s> You are a helpful assistant . "
    serve(system + "Hi there !")
    draw(cache, "one prompt")
    tokens, node = serve(system + "Hi What is the time ?")
    draw(cache, "another one parts from it at a page's end")
    lock = cache.inc_lock_ref(node)
    draw(cache, "and is being served")
    cache.evict(6)
    free += cache.take_freed().tolist()
    draw(cache, "six tokens were needed: the leaf that nobody holds went")
    lock.release()
    cache.evict(4)
    told = cache.explain(tokens)
    draw(cache, "and four more")
    print(f"\nWhy is '{text(tokens)}' found up to {told.prefix_tokens} tokens only? It was {told.why}: "
          f"{told.evicted_tokens} tokens, by {told.eviction.policy}.")
    return not (told.why == "evicted" and cache.total_size == 8 and told.prefix_tokens == 8)


if __name__ == "__main__":
    sys.exit(main())
