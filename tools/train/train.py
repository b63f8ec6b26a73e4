#!/usr/bin/env python3
"""train.py - trains radish-tiny on one CPU core.

    train.py --steps 12000 --out run      # new run, or the next part of run/last.pt

A batch is rows of one length. A row is one long conversation, or several short
ones and raw questions that do not see each other. Only the answers are learned.
The learning rate rises, stays, and falls linearly to zero at the end. Every few
minutes a held-out sample (wordings of the evaluation, another seed) is scored.
"""
import argparse
import itertools
import os
import random
import time

import numpy as np
import torch

import generate
from bpe import Tokenizer
from model import CONFIG, Model, document_mask

HERE = os.path.dirname(os.path.abspath(__file__))
DEV_SEED = 4711

# Row lengths: (tokens, share of the batches) for the first part and the last part of training.
LENGTHS_EARLY = ((128, 0.3), (256, 0.55), (512, 0.1), (2048, 0.05))
LENGTHS_LATE = ((128, 0.3), (256, 0.45), (512, 0.1), (2048, 0.15))


class Rows:
    """Draws batches of token rows with a target mask and document numbers."""

    def __init__(self, tok, seed):
        self.tok = tok
        self.rng = random.Random(seed)
        self.writer = generate.Writer(self.rng)

    def turn(self, question, answer):
        """Ids of one exchange, and which of them are to be predicted."""
        t = self.tok
        ask = [t.user] + t.encode(question) + [t.end, t.assistant]
        say = t.encode(answer) + [t.end]
        return ask + say, [0] * len(ask) + [1] * len(say)

    def chat(self, room, turns=1 << 30):
        """One conversation of at most `room` tokens."""
        head, stream = self.writer.chat(max_sentences=1 + room // 32)
        ids = self.tok.chat(head, generation_prompt=False)
        want = [0] * len(ids)
        for question, answer, _ in itertools.islice(stream, turns):
            more, more_want = self.turn(question, answer)
            if len(ids) + len(more) > room:
                break
            ids += more
            want += more_want
        return ids, want

    def raw(self):
        question, answer = self.writer.raw()
        ask = self.tok.raw(question)
        say = self.tok.encode(" " + answer) + [self.tok.eos]
        return ask + say, [0] * len(ask) + [1] * len(say)

    def row(self, length):
        ids, want, doc = [], [], []
        many = length <= 512 and self.rng.random() < (0.75 if length == 128 else 0.3)
        number = 0
        while len(ids) < length:
            room = length - len(ids)
            if not many:
                more, more_want = self.chat(room)
            elif self.rng.random() < 0.7:
                more, more_want = self.raw()
            else:
                more, more_want = self.chat(min(room, 120), self.rng.randint(1, 3))
            if len(more) > room or not any(more_want):
                break
            ids += more
            want += more_want
            doc += [number] * len(more)
            number += 1
            if not many:
                break
        pad = length - len(ids)
        return ids + [self.tok.pad] * pad, want + [0] * pad, doc + [-1] * pad

    def batch(self, length, tokens):
        rows = [self.row(length) for _ in range(max(1, tokens // length))]
        ids, want, doc = (torch.tensor(np.array(x)) for x in zip(*rows))
        return ids, want, doc


def pack_exam(tok, items):
    """[(ids, first answer position)] of evaluation items, answers included."""
    out = []
    for item in items:
        if "prompt" in item:
            ask, say = tok.raw(item["prompt"]), tok.encode(" " + item["answer"]) + [tok.eos]
        else:
            ask, say = tok.chat(item["messages"]), tok.encode(item["answer"]) + [tok.end]
        out.append((ask + say, len(ask)))
    return out


def score(model, tok, items):
    """{kind or context: (right, all)}: right is an answer every token of which is the
    most likely one, which is what greedy decoding would have written."""
    exam = pack_exam(tok, items)
    order = sorted(range(len(exam)), key=lambda i: len(exam[i][0]))
    tally = {}
    while order:
        length = min(2048, -(-len(exam[order[0]][0]) // 32) * 32 + 32)
        group = [i for i in order if len(exam[i][0]) <= length][:max(1, 8192 // length)]
        order = order[len(group):]
        ids = torch.full((len(group), length), tok.pad)
        for row, i in enumerate(group):
            ids[row, :len(exam[i][0])] = torch.tensor(exam[i][0])
        with torch.no_grad():
            hidden = model.hidden(ids, document_mask(torch.zeros_like(ids))).view(*ids.shape, -1)
            for row, i in enumerate(group):
                seq, first = exam[i]
                best = model.logits(hidden[row, first - 1:len(seq) - 1]).argmax(-1).tolist()
                right = best == seq[first:]
                for key in (items[i]["kind"], items[i]["context"], "all"):
                    r, n = tally.get(key, (0, 0))
                    tally[key] = (r + right, n + 1)
    return tally


def rate(progress, peak, warmup, decay):
    """Learning rate at `progress` 0..1 of the run."""
    return peak * min(1.0, progress / warmup, max(0.0, 1 - progress) / decay)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--out", default="run")
    ap.add_argument("--steps", type=int, default=12000)
    ap.add_argument("--tokens", type=int, default=4096, help="per step")
    ap.add_argument("--peak", type=float, default=2e-3, help="learning rate")
    ap.add_argument("--warmup", type=float, default=0.02, help="share of the steps")
    ap.add_argument("--decay", type=float, default=0.5, help="share of the steps")
    ap.add_argument("--late", type=float, default=0.6, help="progress where long rows set in")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--init", help="start from the weights of this checkpoint")
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    os.makedirs(a.out, exist_ok=True)
    tok = Tokenizer.load(os.path.join(HERE, "tokenizer.json"))
    assert len(tok.tokens) == CONFIG["vocab"]
    dev = [x for x in generate.eval_items(lambda m: len(tok.chat(m)), DEV_SEED)
           if x["context"] != "long"]  # those take long to score

    model = Model()
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    opt = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05},
                             {"params": vectors, "weight_decay": 0.0}],
                            lr=a.peak, betas=(0.9, 0.98), eps=1e-9, foreach=True)
    step, seconds = 0, 0.0
    last = os.path.join(a.out, "last.pt")
    if os.path.exists(last):
        state = torch.load(last)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        step, seconds = state["step"], state["seconds"]
        print("going on at step %d" % step, flush=True)
    elif a.init:
        model.load_state_dict(torch.load(a.init)["model"])
    print("%d parameters" % sum(p.numel() for p in model.parameters()), flush=True)

    began, said, losses = time.time(), time.time(), []
    while step < a.steps:
        progress = step / a.steps
        rows = Rows(tok, "%d/%d" % (a.seed, step))  # a resumed run sees what it would have seen
        lengths = LENGTHS_LATE if progress >= a.late else LENGTHS_EARLY
        length = rows.rng.choices([x for x, _ in lengths], [x for _, x in lengths])[0]
        ids, want, doc = rows.batch(length, a.tokens)
        target = want[:, 1:].reshape(-1).nonzero()[:, 0]
        where = target // (length - 1) * length + target % (length - 1)
        hidden = model.hidden(ids, document_mask(doc))
        loss = torch.nn.functional.cross_entropy(model.logits(hidden[where]),
                                                 ids[:, 1:].reshape(-1)[target])
        for group in opt.param_groups:
            group["lr"] = rate((step + 1) / a.steps, a.peak, a.warmup, a.decay)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        losses.append(loss.item())
        step += 1
        if step % 100 == 0:
            now = time.time()
            print("step %d loss %.4f lr %.1e %.0f tokens/s" % (
                step, sum(losses) / len(losses), opt.param_groups[0]["lr"],
                a.tokens * len(losses) / (now - said)), flush=True)
            said, losses = now, []
        if step % 500 == 0 or step == a.steps:
            tally = score(model, tok, dev)
            print("  dev: " + ", ".join("%s %.1f" % (k, 100 * r / n)
                                        for k, (r, n) in sorted(tally.items())), flush=True)
            torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step,
                        "seconds": seconds + time.time() - began, "args": vars(a)}, last + ".new")
            os.replace(last + ".new", last)
            said = time.time()
    print("%d steps in %.0f s" % (step, seconds + time.time() - began))


if __name__ == "__main__":
    main()
