#!/usr/bin/env python3
"""generate.py - writes the conversations radish-tiny learns from, and its exam.

    generate.py --show 3             # print some training documents
    generate.py --eval eval.jsonl    # write the evaluation set

A document is a list of messages. Everything is drawn from one random.Random,
so a seed names a document stream; training uses seeds the evaluation set does
not. Facts come from world.py, wordings from wordings.py, and a Writer is told
once whether it may use the wordings of training or those of the evaluation.
"""
import argparse
import json
import os
import random

import world as w
import wordings as v

HERE = os.path.dirname(os.path.abspath(__file__))
EVAL_SEED = 20260

# How often each kind of fact is asked: roughly by how hard it is to learn.
WEIGHTS = {"capital": 18, "capital_of": 8, "currency": 15, "continent": 8, "add": 16,
           "subtract": 11, "to_word": 6, "to_digits": 6, "day_after": 2, "day_before": 2,
           "month_after": 2, "month_before": 2, "month_nth": 2, "month_number": 2,
           "month_days": 2, "opposite": 13}
# The name under which the evaluation counts a kind.
EVAL_KIND = {"capital": "capital", "capital_of": "capital", "currency": "currency",
             "continent": "continent", "add": "sum", "subtract": "sum", "to_word": "number",
             "to_digits": "number", "day_after": "day", "day_before": "day",
             "month_after": "month", "month_before": "month", "month_nth": "month",
             "month_number": "month", "month_days": "month", "opposite": "opposite"}
RELATIONS = ("capital", "currency", "continent")
CAPITAL_OF = {c: k for k, c in w.CAPITAL.items()}
FACTS = {"capital": w.CAPITAL, "currency": w.CURRENCY, "continent": w.CONTINENT}


def upper_first(s):
    return s[:1].upper() + s[1:]


class Writer:
    """Draws questions, answers and whole conversations."""

    def __init__(self, rng, evaluation=False):
        self.rng = rng
        self.evaluation = evaluation
        self.kinds = list(WEIGHTS)
        self.weights = list(WEIGHTS.values())
        self.phrases = {k: v.lines(t) for k, t in v.PHRASES_TRAIN.items()}
        self.direct = {k: v.lines(t) for k, t in v.DIRECT_TRAIN.items()}
        self.phrases_eval = {k: v.lines(t) for k, t in v.PHRASES_EVAL.items()}
        self.direct_eval = {k: v.lines(t) for k, t in v.DIRECT_EVAL.items()}

    # ---- one question ----

    def fact(self, kind):
        """(slots, answer) of a random fact."""
        r = self.rng
        if kind in FACTS:
            x = r.choice(w.COUNTRIES)
            return {"x": x}, FACTS[kind][x]
        if kind == "capital_of":
            x = r.choice(w.COUNTRIES)
            return {"x": w.CAPITAL[x]}, x
        if kind == "add":
            x, y = r.randint(0, w.MAX_OPERAND), r.randint(0, w.MAX_OPERAND)
            return {"x": x, "y": y}, str(x + y)
        if kind == "subtract":
            x = r.randint(0, w.MAX_OPERAND)
            y = r.randint(0, x)
            return {"x": x, "y": y}, str(x - y)
        if kind == "to_word":
            x = r.randint(0, 100)
            return {"x": x}, w.number_word(x)
        if kind == "to_digits":
            x = r.randint(0, 100)
            return {"x": w.number_word(x)}, str(x)
        if kind.startswith("day"):
            i = r.randrange(7)
            return {"x": w.DAYS[i]}, w.DAYS[(i + (1 if kind == "day_after" else 6)) % 7]
        if kind == "opposite":
            x = r.choice(list(w.OPPOSITE))
            return {"x": x}, w.OPPOSITE[x]
        i = r.randrange(12)
        if kind == "month_days":
            i = r.choice([m for m in range(12) if w.MONTH_DAYS[m]])
            return {"x": w.MONTHS[i]}, str(w.MONTH_DAYS[i])
        if kind == "month_number":
            return {"x": w.MONTHS[i]}, str(i + 1)
        if kind == "month_nth":
            return {"x": w.ORDINALS[i]}, w.MONTHS[i]
        return {"x": w.MONTHS[i]}, w.MONTHS[(i + (1 if kind == "month_after" else 11)) % 12]

    def wording(self, kind):
        """A question with its slots unfilled."""
        r = self.rng
        if self.evaluation:
            d = r.random()
            if d < 0.25:
                return r.choice(self.direct_eval[kind])
            if d < 0.40:
                return r.choice(v.FRAMES_TRAIN).replace("{}", r.choice(self.phrases_eval[kind]))
            phrase = r.choice(self.phrases_eval[kind] if d < 0.60 else self.phrases[kind])
            return r.choice(v.FRAMES_EVAL).replace("{}", phrase)
        if r.random() < 0.3:
            return r.choice(self.direct[kind])
        frame = r.choice(v.FRAMES_TRAIN)
        return frame.replace("{}", r.choice(self.phrases[kind]))

    def noise_word(self):
        """A word that has nothing to do with the question, or no word at all."""
        r = self.rng
        if r.random() < 0.65:
            return r.choice(v.NOISE)
        return "".join(r.choice(("", *"bcdfghklmnprstvwz", "st", "tr", "ch", "sh")) +
                       r.choice(("a", "e", "i", "o", "u", "ea", "ou")) +
                       r.choice(("", "", "n", "r", "s", "t", "ng", "ly"))
                       for _ in range(r.randint(1, 3)))

    def strew(self, template):
        """Noise words in a template of training: in front, or anywhere around the slots."""
        r = self.rng
        if self.evaluation or r.random() < 0.6:
            return template
        words = template.split(" ")
        if r.random() < 0.5:
            lead = [self.noise_word() for _ in range(r.randint(1, 5))]
            lead[-1] += r.choice(("", "", ",", ":", ".", "!"))
            words = lead + words
        if r.random() < 0.7:
            for _ in range(r.choice((1, 1, 2))):
                words.insert(r.randint(0, len(words) - 1), self.noise_word())
        return " ".join(words)

    def vary(self, text):
        """Small liberties people take; none in the evaluation set."""
        r = self.rng
        if self.evaluation or r.random() < 0.7:
            return upper_first(text)
        d = r.random()
        if d < 0.3:
            return text.lower()
        if d < 0.5:
            return upper_first(text.rstrip(".?"))
        if d < 0.6:
            return text.lower().rstrip(".?")
        if d < 0.9:  # a sentence of no meaning in front
            return self.filler_sentence() + " " + upper_first(text)
        return upper_first(text) + " " + r.choice(["Thanks!", "Thank you.", "Please be brief."])

    def question(self, kind=None):
        """(kind, question, answer, country the talk is about now or None)."""
        kind = kind or self.rng.choices(self.kinds, self.weights)[0]
        slots, answer = self.fact(kind)
        country = slots["x"] if kind in FACTS else answer if kind == "capital_of" else None
        text = self.vary(self.strew(self.wording(kind)).format(**slots))
        return kind, text, upper_first(answer) + ".", country

    def follow_up(self, kind, country):
        """A question that only the turn before makes clear, or None."""
        r = self.rng
        its, of = (v.ITS_EVAL, v.OF_EVAL) if self.evaluation else (v.ITS_TRAIN, v.OF_TRAIN)
        if country and (kind == "capital_of" or r.random() < 0.6):
            relation = r.choice([x for x in RELATIONS if x != kind])
            text = self.strew(r.choice(its)).format(r=relation)
            return relation, self.vary(text), FACTS[relation][country] + ".", country
        if country:
            country = r.choice(w.COUNTRIES)
            return (kind, self.vary(self.strew(r.choice(of)).format(x=country)), FACTS[kind][country] + ".",
                    country)
        if kind == "opposite":
            slots, answer = self.fact(kind)
            return kind, self.vary(self.strew(r.choice(of)).format(**slots)), upper_first(answer) + ".", None
        return None

    # ---- other turns ----

    def filler_sentence(self):
        r = self.rng
        join, who = r.choice(v.FILLER_JOIN), r.choice(v.FILLER_WHO)
        if join and who != "I":
            who = who[0].lower() + who[1:]
        text = join + who + " " + r.choice(v.FILLER_DID)
        if r.random() < 0.7:
            text += " " + r.choice(v.FILLER_WHERE)
        if r.random() < 0.6:
            text += " " + r.choice(v.FILLER_WHEN)
        return text + "."

    def filler(self):
        n = self.rng.choice((1, 1, 2, 2, 3, 4, 6, 9))
        return " ".join(self.filler_sentence() for _ in range(n)), v.FILLER_ANSWERS

    def small_talk(self):
        question, answer = self.rng.choice(v.SMALL_TALK).split("|")
        return question, w.IDENTITY if answer == "@" else answer

    def unknown(self):
        r = self.rng
        if r.random() < 0.1:  # a country nobody has heard of
            name = w.COUNTRIES[0]
            while name in w.COUNTRIES:
                name = upper_first("".join(r.choice("bdfgklmnprstvz") + r.choice("aeiou")
                                           for _ in range(r.randint(2, 4))))
            kind = r.choice(RELATIONS)
            return self.wording(kind).format(x=name), w.UNKNOWN
        text = r.choice(v.UNKNOWN).format(thing=r.choice(v.THINGS), c=r.choice(w.COUNTRIES))
        return self.vary(text), w.UNKNOWN

    # ---- conversations ----

    def system(self, max_sentences=24):
        """A system prompt, from one sentence to several hundred tokens."""
        r = self.rng
        pool = v.SYSTEM_EVAL if self.evaluation else v.SYSTEM_TRAIN
        n = min(r.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 12, 20, 30)), len(pool), max_sentences)
        return r.sample(pool, n)

    def turns(self, memory, filler_share):
        """An endless stream of (user text, assistant text, kind).

        `memory` holds what has been said so far: "name" and "secret".
        """
        r = self.rng
        kind = country = None
        while True:
            d = r.random()
            if d < filler_share:
                kind = country = None
                yield (*self.filler(), None)
                continue
            d = r.random()
            if d < 0.05:
                yield (*self.small_talk(), None)  # the topic survives small talk
                continue
            if d < 0.09:
                kind = country = None
                yield (*self.unknown(), None)
                continue
            if d < 0.11:
                memory["name"] = r.choice(w.NAMES)
                kind = country = None
                yield (r.choice(v.NAME_TELL).format(x=memory["name"]),
                       "Hello, %s." % memory["name"], None)
                continue
            if d < 0.23 and memory:
                what = r.choice(sorted(memory))
                kind = country = None
                yield self.recall(memory, what)
                continue
            if d < 0.45:
                follow = self.follow_up(kind, country)
                if follow:
                    kind, text, answer, country = follow
                    yield text, answer, "follow"
                    continue
            kind, text, answer, country = self.question()
            yield text, answer, EVAL_KIND[kind]

    def recall(self, memory, what):
        r = self.rng
        if what == "name":
            ask = v.NAME_ASK_EVAL if self.evaluation else v.NAME_ASK_TRAIN
            return self.vary(self.strew(r.choice(ask))), "Your name is %s." % memory["name"], "recall"
        ask = v.SECRET_ASK_EVAL if self.evaluation else v.SECRET_ASK_TRAIN
        return self.vary(self.strew(r.choice(ask))), "The word is %s." % memory["secret"], "recall"

    def opening(self, memory, max_sentences=24, say_name=0.15, say_secret=0.25):
        """The system message as a list of zero or one, noting what it tells."""
        r = self.rng
        if r.random() < 0.12 and not self.evaluation:
            return []
        sentences = self.system(max_sentences)
        if r.random() < say_name:
            memory["name"] = r.choice(w.NAMES)
            sentences.insert(r.randint(0, len(sentences)),
                             r.choice(v.NAME_SYSTEM).format(x=memory["name"]))
        if r.random() < say_secret:
            memory["secret"] = r.choice(w.SECRETS)
            sentences.insert(r.randint(0, len(sentences)),
                             r.choice(v.SECRET_SYSTEM).format(x=memory["secret"]))
        return [{"role": "system", "content": " ".join(sentences)}]

    def chat(self, max_sentences=24):
        """(opening messages, stream of turns) of one training conversation."""
        memory = {}
        filler_share = self.rng.choice((0, 0, 0, 0.05, 0.1, 0.3))
        head = self.opening(memory, max_sentences)
        return head, self.turns(memory, filler_share)

    def raw(self):
        """(prompt, answer) of one raw document; the answer has no space in front."""
        if self.rng.random() < 0.03:
            return self.unknown()
        _, text, answer, _ = self.question()
        return text, answer


# ---- the evaluation set ------------------------------------------------------------------

EVAL_COUNTS = {"capital": 110, "currency": 80, "continent": 60, "sum": 90, "number": 60, "day": 40,
               "month": 60, "opposite": 60, "follow": 50, "recall": 40}
LONG_TOKENS = 1500     # "long" items have at least this much before the last question
CONTEXT_TOKENS = 2000  # and no item has more than this in all


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def last_turns(writer, kind, memory):
    """The turns that end an item: all but the last answered already."""
    r = writer.rng
    if kind == "recall":
        what = r.choice(sorted(memory))
        text, answer, _ = writer.recall(memory, what)
        return [], text, answer
    if kind == "follow":
        while True:
            k, first, first_answer, country = writer.question(r.choice(RELATIONS + ("capital_of",)))
            _, text, answer, _ = writer.follow_up(k, country)
            return [user(first), assistant(first_answer)], text, answer
    kinds = [k for k in WEIGHTS if EVAL_KIND[k] == kind]
    k = r.choices(kinds, [WEIGHTS[x] for x in kinds])[0]
    _, text, answer, _ = writer.question(k)
    return [], text, answer


def eval_item(writer, kind, context, count_tokens):
    """One item of the evaluation set, without its id."""
    r = writer.rng
    if context == "raw":
        _, text, answer = last_turns(writer, kind, {})
        return {"kind": kind, "context": context, "prompt": text, "answer": answer}
    memory = {}
    if kind == "recall":
        sure = r.random() < 0.5
        head = writer.opening(memory, 8, say_name=float(sure), say_secret=float(not sure))
    else:
        head = writer.opening(memory, 8 if context == "first" else 30)
    final, text, answer = last_turns(writer, kind, memory)
    tail = final + [user(text)]
    messages = list(head)
    if context != "first":
        # The other turns may not change what is asked for, so they run on a copy
        # of the memory and are drawn again when they tell another name.
        at_least = LONG_TOKENS if context == "long" else 0
        turns_wanted = 1 if context == "long" else r.randint(2, 9)
        held = dict(memory)
        stream = writer.turns(held, r.choice((0.1, 0.3)))
        for question, reply, _ in stream:
            if held != memory:
                held.clear()
                held.update(memory)
                continue
            messages += [user(question), assistant(reply)]
            turns_wanted -= 1
            if turns_wanted <= 0 and count_tokens(messages) >= at_least:
                break
    messages += tail
    assert count_tokens(messages) <= CONTEXT_TOKENS
    return {"kind": kind, "context": context, "messages": messages, "answer": answer}


def eval_items(count_tokens, seed=EVAL_SEED):
    writer = Writer(random.Random(seed), evaluation=True)
    items, seen = [], set()
    for kind, count in EVAL_COUNTS.items():
        contexts = ("first", "later", "long", "raw")
        shares = (30, 30, 15, 25) if kind not in ("follow", "recall") else (30, 45, 25, 0)
        todo = [c for c, s in zip(contexts, shares) for _ in range(round(count * s / 100))]
        for context in todo:
            while True:
                item = eval_item(writer, kind, context, count_tokens)
                question = item["prompt"] if context == "raw" else item["messages"][-1]["content"]
                if kind in ("follow", "recall") or (question, context) not in seen:
                    break
            seen.add((question, context))
            items.append({"id": "%s-%03d" % (kind, len(items)), **item})
    return items


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--eval", metavar="FILE", help="write the evaluation set here")
    ap.add_argument("--show", type=int, default=0, help="print this many training documents")
    ap.add_argument("--seed", type=int, default=EVAL_SEED)
    a = ap.parse_args()
    if a.eval:
        from bpe import Tokenizer
        tok = Tokenizer.load(os.path.join(HERE, "tokenizer.json"))
        items = eval_items(lambda m: len(tok.chat(m)), a.seed)
        with open(a.eval, "w", encoding="utf-8") as f:
            for item in items:
                f.write(json.dumps(item, ensure_ascii=False) + "\n")
        print("%d items" % len(items))
    writer = Writer(random.Random(a.seed + 1))
    for _ in range(a.show):
        head, stream = writer.chat()
        for m in head:
            print("[%s] %s" % (m["role"], m["content"]))
        for _, (question, answer, _) in zip(range(12), stream):
            print("  %s -> %s" % (question, answer))
        print("raw: %s -> %s\n" % writer.raw())


if __name__ == "__main__":
    main()
