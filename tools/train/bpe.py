#!/usr/bin/env python3
"""bpe.py - a byte-level BPE tokenizer, GPT-2 style: training, encoding, decoding.

    bpe.py --train tokenizer.json    # learn the merges from generated text

Text is split by GPT-2's pattern into words, words become bytes, bytes become
printable letters (GPT-2's table), and the learned merges join neighbours.
Control tokens are never made from text; only chat() and raw() place them.
"""
import argparse
import collections
import json
import random
import re

# GPT-2's pattern in the dialect of `re`: [^\W\d_] is a letter.
PATTERN = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
CONTROL = ["<|bos|>", "<|eos|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"]
VOCAB_SIZE = 3072


def byte_letters():
    """GPT-2's letter for each byte: itself where printable, else 256 and up."""
    printable = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    letters, extra = [], 256
    for b in range(256):
        letters.append(chr(b if b in printable else extra))
        extra += b not in printable
    return letters


LETTERS = byte_letters()
BYTES = {c: b for b, c in enumerate(LETTERS)}


def to_letters(word):
    return "".join(LETTERS[b] for b in word.encode("utf-8"))


class Tokenizer:
    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.tokens = LETTERS + [a + b for a, b in self.merges] + CONTROL
        self.id = {t: i for i, t in enumerate(self.tokens)}
        assert len(self.id) == len(self.tokens), "two merges give one token"
        self.bos, self.eos, self.system, self.user, self.assistant, self.end, self.pad = (
            self.id[c] for c in CONTROL)
        self.cache = {}

    @staticmethod
    def load(path):
        with open(path, encoding="utf-8") as f:
            return Tokenizer([m.split(" ") for m in json.load(f)["merges"]])

    def save(self, path):
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"merges": [" ".join(m) for m in self.merges]}, f, ensure_ascii=False,
                      indent=0)

    def word(self, word):
        """Ids of one word of the pattern: the best-ranked pair is joined first."""
        parts = list(to_letters(word))
        while len(parts) > 1:
            best = min(range(len(parts) - 1),
                       key=lambda i: self.rank.get((parts[i], parts[i + 1]), 1 << 30))
            if (parts[best], parts[best + 1]) not in self.rank:
                break
            pair = (parts[best], parts[best + 1])
            joined, i = [], 0
            while i < len(parts):
                if i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair:
                    joined.append(parts[i] + parts[i + 1])
                    i += 2
                else:
                    joined.append(parts[i])
                    i += 1
            parts = joined
        return [self.id[p] for p in parts]

    def encode(self, text):
        ids = []
        for word in PATTERN.findall(text):
            known = self.cache.get(word)
            if known is None:
                known = self.cache[word] = self.word(word)
            ids += known
        return ids

    def decode(self, ids):
        letters = "".join(self.tokens[i] for i in ids if i < len(self.tokens) - len(CONTROL))
        return bytes(BYTES[c] for c in letters).decode("utf-8", "replace")

    # ---- the two forms of a prompt ----

    def message(self, role, content):
        return [self.id["<|%s|>" % role]] + self.encode(content) + [self.end]

    def chat(self, messages, generation_prompt=True):
        ids = [self.bos]
        for m in messages:
            ids += self.message(m["role"], m["content"])
        return ids + [self.assistant] if generation_prompt else ids

    def raw(self, prompt):
        return [self.bos] + self.encode(prompt)


def train(counts, num_merges):
    """Learns merges from {word: count}. Ties go to the pair that sorts first."""
    words = [[list(to_letters(x)), c] for x, c in sorted(counts.items())]
    pairs = collections.Counter()
    where = collections.defaultdict(set)
    for n, (parts, count) in enumerate(words):
        for pair in zip(parts, parts[1:]):
            pairs[pair] += count
            where[pair].add(n)
    merges, made = [], set(LETTERS)
    while len(merges) < num_merges:
        pair = min(pairs, key=lambda p: (-pairs[p], p))
        assert pairs[pair] > 0, "too little text for so many merges"
        if pair[0] + pair[1] in made:  # the same letters by another road: one token only
            del pairs[pair]
            continue
        merges.append(pair)
        made.add(pair[0] + pair[1])
        for n in sorted(where.pop(pair)):
            parts, count = words[n]
            for p in zip(parts, parts[1:]):
                if p in pairs:
                    pairs[p] -= count
            joined, i = [], 0
            while i < len(parts):
                if tuple(parts[i:i + 2]) == pair:
                    joined.append(pair[0] + pair[1])
                    i += 2
                else:
                    joined.append(parts[i])
                    i += 1
            words[n][0] = joined
            for p in zip(joined, joined[1:]):
                if p[0] + p[1] not in made or p in pairs:
                    pairs[p] += count
                    where[p].add(n)
        pairs.pop(pair, None)
    return merges


def corpus_counts(num_chats, seed):
    """Words of generated text, and every word of the world a few times more."""
    import generate
    import world
    counts = collections.Counter()
    writer = generate.Writer(random.Random(seed))
    for _ in range(num_chats):
        head, stream = writer.chat()
        for m in head:
            counts.update(PATTERN.findall(m["content"]))
        for _, (question, answer, _) in zip(range(10), stream):
            counts.update(PATTERN.findall(question))
            counts.update(PATTERN.findall(answer))
    facts = list(world.COUNTRIES) + list(world.CAPITAL.values()) + list(world.CURRENCY.values())
    facts += world.DAYS + world.MONTHS + world.NAMES + [str(n) for n in range(101)]
    lower = list(world.OPPOSITE) + world.SECRETS + world.ORDINALS
    lower += [world.number_word(n) for n in range(101)]
    facts += lower + [generate.upper_first(x) for x in lower]
    for fact in facts:
        for text in (fact, " " + fact):
            counts.update({x: num_chats // 25 for x in PATTERN.findall(text)})
    return counts


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--train", metavar="FILE", required=True)
    ap.add_argument("--chats", type=int, default=4000)
    ap.add_argument("--seed", type=int, default=7)
    a = ap.parse_args()
    counts = corpus_counts(a.chats, a.seed)
    tok = Tokenizer(train(counts, VOCAB_SIZE - 256 - len(CONTROL)))
    tok.save(a.train)
    total = sum(len(tok.word(x)) * c for x, c in counts.items())
    print("%d words, %.2f tokens per word on average, vocabulary %d" %
          (len(counts), total / sum(counts.values()), len(tok.tokens)))


if __name__ == "__main__":
    main()
