"""vocabulary.py - vocabularies of tests: trained here, and encoded with slowly, from the definitions.

    bpe = Bpe.train(counts, 2000, "gpt-2")      counts: {text: how often}
    spm = Spm.train(counts, 512)
    raw = RawBpe.train(counts, 600)             as Gemma 4 has it
    bpe.encode("text")                          ids; nothing in front or behind
    bpe.keys()                                  what a GGUF file says of it, for tiny_gguf.write

This is what radish's tokenizers are compared with, so it shares nothing with them: Python's `re`
over lists of Unicode's categories cuts the text, and the best pair of a word is looked for again
after every merge. A vocabulary is small for its kind (hundreds to thousands of merges), but made
the way the large ones are.
"""
import collections
import heapq
import re
import unicodedata

from tiny_gguf import ARR, BOOL, F32, I32, STR, U32, byte_letters

NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
NO_BYTES = (0xc0, 0xc1, *range(0xf5, 0x100))  # those that are in no UTF-8


# ---- cutting text into words ----

def _ranges(codes):
    """The inside of a character class."""
    out, start, last = [], None, None
    for code in [*codes, None]:
        if last is not None and code == last + 1:
            last = code
            continue
        if last is not None:
            out.append(f"\\U{start:08x}-\\U{last:08x}")
        start = last = code
    return "".join(out)


CODES = collections.defaultdict(list)  # by category
for _code in range(0x110000):
    CODES[unicodedata.category(chr(_code))].append(_code)


def _category(*names, but=frozenset()):
    """Of categories ("Lu") and groups of them ("L")."""
    return _ranges(sorted(c for name, codes in CODES.items() for c in codes
                          if (name in names or name[0] in names) and c not in but))


HAN = {c for codes in CODES.values() for c in codes if unicodedata.name(chr(c), "").startswith(
    ("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "CJK RADICAL", "KANGXI RADICAL"))}
HAN |= {0x3005, 0x3007, *range(0x3021, 0x302a), *range(0x3038, 0x303c), 0x16fe2, 0x16fe3, 0x16ff0,
        0x16ff1}


WS = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
L, N, M, P, S = (_category(letter) for letter in "LNMPS")
SPACES = f"[{WS}]+(?![^{WS}])|[{WS}]+"
ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = f"[^\\r\\n{L}{N}]?[{L}]+"
SIGNS = f" ?[^{WS}{L}{N}]+[\\r\\n]*"
BREAKS = f"[{WS}]*[\\r\\n]+"
GPT_2 = f"'(?:s|t|re|ve|m|ll|d)| ?[{L}]+| ?[{N}]+| ?[^{WS}{L}{N}]+|{SPACES}"
CJK = "[\u0800-\u9fa5\uac00-\ud7ff]+"
BLOOM = f" ?[^(|){WS}.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c]+"
UPPER, LOWER = (_category(*kinds, "Lm", "Lo", "M") for kinds in (("Lu", "Lt"), ("Ll",)))
CAPITAL, SMALL = (f"[{_category(one, 'Lt' if one == 'Lu' else one, 'Lm', 'Lo', 'M', but=HAN)}]"
                  for one in ("Lu", "Ll"))

# Each a list of expressions: what one leaves is cut by the next. Of deepseek-llm's letters only
# those that have two cases, which is what it lists, up to U+052F.
PATTERNS = {
    "gpt-2": [GPT_2],
    "default": [f"[{P}$+<=>^~|]+", GPT_2, f"[{N}]+", "[0-9]{3}"],
    "falcon": [f"[{P}$+<=>^~|`]+", GPT_2, "[0-9]{3}"],
    "starcoder": [f"[{N}]", GPT_2],
    "llama-bpe": [f"{ENDINGS}|{WORDS}|[{N}]{{1,3}}|{SIGNS}|{BREAKS}|{SPACES}"],
    "qwen2": [f"{ENDINGS}|{WORDS}|[{N}]|{SIGNS}|{BREAKS}|{SPACES}"],
    "bailingmoe": [f"{ENDINGS}|{WORDS}|[{N}]|{SIGNS}|{BREAKS}|{SPACES}"],
    "qwen35": [f"{ENDINGS}|[^\\r\\n{L}{N}]?[{L}{M}]+|[{N}]| ?[^{WS}{L}{M}{N}]+[\\r\\n]*|{BREAKS}|"
               f"{SPACES}"],
    "minicpm5": [f"[{N}]{{1,3}}", f"{ENDINGS}|{WORDS}|[{N}]+|{SIGNS}|{BREAKS}|{SPACES}"],
    "youtu": ["[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a"
              "\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u30ff]+",
              f"[^\\r\\n{L}{N}]?[{UPPER}]*[{LOWER}]+{ENDINGS}?|[^\\r\\n{L}{N}]?[{UPPER}]+[{LOWER}]*{ENDINGS}?|"
              f"[{N}]| ?[^{WS}{L}{N}]+[\\r\\n/]*|{BREAKS}|{SPACES}"],
    "poro-chat": [BLOOM],
    "viking": [BLOOM, f"[{N}]"],
    "seed-coder": [f"{ENDINGS}|{WORDS}|[{N}]| ?[^{WS}{L}{N}]+|{BREAKS}|{SPACES}"],
    "kimi-k2": [f"[{_ranges(sorted(HAN))}]+|"
                f"[^\\r\\n{L}{N}]?{CAPITAL}*{SMALL}+{ENDINGS}?|"
                f"[^\\r\\n{L}{N}]?{CAPITAL}+{SMALL}*{ENDINGS}?|"
                f"[{N}]{{1,3}}|{SIGNS}|{BREAKS}|{SPACES}"],
    "deepseek-coder": [r"[\r\n]", f"[{WS}]?[{L}]+", f"[{WS}]?[{P}]+", CJK, f"[{N}]"],
    "deepseek-v3": [
        f"[{N}]{{1,3}}", "[\u4e00-\u9fa5\u3040-\u30ff]+",
        f"[!-/:-@\\[-`{{-~][A-Za-z]+|[^\\r\\n{L}{P}{S}]?[{L}{M}]+| ?[{P}{S}]+[\\r\\n]*|{BREAKS}|"
        f"{SPACES}"],
    "deepseek-llm": [
        r"[\r\n]",
        f"[{WS}]?[" + _ranges(c for c in range(0x530) if chr(c).lower() != chr(c).upper()) + "]+",
        f"[{WS}]?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        f"[{WS}]+$", CJK, f"[{N}]"],
}
COMPILED = {}
WHOLE = ("llama-bpe", "minicpm5", "youtu")  # a word that is a token is that token


def cut(text, pre):
    if pre not in COMPILED:
        COMPILED[pre] = [re.compile(p) for p in PATTERNS[pre]]
    pieces = [text]
    for pattern in COMPILED[pre]:
        left = []
        for piece in pieces:
            at = 0
            for match in pattern.finditer(piece):
                if match.start() > at:
                    left.append(piece[at:match.start()])
                if match.end() > match.start():
                    left.append(match.group())
                at = match.end()
            if at < len(piece):
                left.append(piece[at:])
        pieces = left
    return pieces


# ---- learning merges ----

def learn(words, num_merges):
    """The merges, most frequent pair first, of {tuple of symbols: count}; a tie goes to the pair
    that sorts first. No two merges give the same symbol."""
    lists = [[list(word), count] for word, count in sorted(words.items())]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for n, (parts, count) in enumerate(lists):
        for pair in zip(parts, parts[1:]):
            pairs[pair] += count
            where[pair].add(n)
    heap = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(heap)
    merges, made = [], set()
    while heap and len(merges) < num_merges:
        count, pair = heapq.heappop(heap)
        if pairs[pair] != -count or not count:
            if pairs[pair] > 0 and -count > pairs[pair]:
                heapq.heappush(heap, (-pairs[pair], pair))
            continue
        joined = pair[0] + pair[1]
        if joined in made:
            continue
        merges.append(pair)
        made.add(joined)
        for n in sorted(where.pop(pair)):
            parts, count = lists[n]
            for old in zip(parts, parts[1:]):
                pairs[old] -= count
            lists[n][0] = parts = merge(parts, pair)
            for new in zip(parts, parts[1:]):
                pairs[new] += count
                where[new].add(n)
                heapq.heappush(heap, (-pairs[new], new))
    return merges


def merge(parts, pair):
    out, i = [], 0
    while i < len(parts):
        if tuple(parts[i:i + 2]) == pair:
            out.append(parts[i] + parts[i + 1])
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out


# ---- byte-level BPE ----

LETTERS = byte_letters()


def letters(text):
    return [LETTERS[b] for b in text.encode()]


class Bpe:
    def __init__(self, merges, pre, users=(), controls=("<|end|>",), lacks=(), unknown=None):
        self.merges, self.pre, self.users, self.unknown = merges, pre, list(users), unknown
        self.rank = {pair: i for i, pair in enumerate(merges)}
        plain = [x for b, x in enumerate(LETTERS) if b not in lacks] + [a + b for a, b in merges]
        self.tokens = plain + self.users + list(controls)
        self.kinds = [NORMAL] * len(plain) + [USER] * len(self.users) + [CONTROL] * len(controls)
        self.id = {token: i for i, token in enumerate(self.tokens)}
        assert len(self.id) == len(self.tokens)

    @classmethod
    def train(cls, counts, num_merges, pre, **options):
        words = collections.Counter()
        for text, count in counts.items():
            for word in cut(text, pre):
                words[tuple(letters(word))] += count
        return cls(learn(words, num_merges), pre, **options)

    def encode(self, text):
        if self.pre in ("qwen2", "qwen35"):
            text = unicodedata.normalize("NFC", text)
        ids = []
        # What the user defined is cut out first, the longest of two that begin at one place.
        split = "|".join(map(re.escape, sorted(self.users, key=len, reverse=True)))
        for part in re.split(f"({split})", text) if split else [text]:
            if part in self.users:
                ids.append(self.id[part])
            else:
                for word in cut(part, self.pre):
                    ids += self.word(word)
        return ids

    def word(self, word):
        # A byte without a token is read as U+FFFD.
        parts = [y for x in letters(word) for y in ([x] if x in self.id else letters("\ufffd"))]
        if self.pre in WHOLE and "".join(parts) in self.id:  # merges do not matter then
            return [self.id["".join(parts)]]
        while len(parts) > 1:
            pair = min(zip(parts, parts[1:]), key=lambda p: self.rank.get(p, len(self.rank)))
            if pair not in self.rank:
                break
            at = list(zip(parts, parts[1:])).index(pair)
            parts[at:at + 2] = [pair[0] + pair[1]]
        return [self.id[part] for part in parts]

    def keys(self):
        pre = [("tokenizer.ggml.pre", STR, self.pre)] if self.pre != "default" else []
        return [("tokenizer.ggml.model", STR, "gpt2"), *pre,
                ("tokenizer.ggml.tokens", ARR, (STR, self.tokens)),
                ("tokenizer.ggml.token_type", ARR, (I32, self.kinds)),
                ("tokenizer.ggml.merges", ARR, (STR, [" ".join(pair) for pair in self.merges])),
                ("tokenizer.ggml.bos_token_id", U32, len(self.tokens) - 1),
                ("tokenizer.ggml.eos_token_id", U32, len(self.tokens) - 1),
                *([("tokenizer.ggml.unknown_token_id", U32, self.tokens.index(self.unknown))]
                  if self.unknown else [])]


# ---- SentencePiece ----

class Spm:
    """<unk>, <s>, </s>, 256 bytes, then pieces: single characters, and what merges make of them;
    the earlier a piece was made, the higher its score. U+2581 stands for a space."""
    FIRST = 259

    def __init__(self, pieces, inner=()):
        self.pieces = pieces
        self.tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces]
        self.kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(pieces)
        self.scores = [0.0] * self.FIRST + [-float(i) for i in range(len(pieces))]
        self.id = {piece: self.FIRST + i for i, piece in enumerate(pieces)}

    @classmethod
    def train(cls, counts, num_tokens):
        words = collections.Counter()
        for text, count in counts.items():
            for word in text.split(" "):
                words[tuple("\u2581" + word)] += count
        chars = sorted({c for word in words for c in word})
        merged = ["".join(p) for p in learn(words, num_tokens - cls.FIRST - len(chars))]
        return cls(merged + chars)

    def encode(self, text):
        if not text:
            return []
        parts = list("\u2581" + text.replace(" ", "\u2581"))
        while True:
            scored = [(-self.scores[self.id[a + b]], i) for i, (a, b) in
                      enumerate(zip(parts, parts[1:])) if a + b in self.id]
            if not scored:
                break
            at = min(scored)[1]
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        ids = []
        for part in parts:
            ids += [self.id[part]] if part in self.id else [3 + b for b in part.encode()]
        return ids

    def keys(self):
        return [("tokenizer.ggml.model", STR, "llama"), ("tokenizer.ggml.pre", STR, "default"),
                ("tokenizer.ggml.tokens", ARR, (STR, self.tokens)),
                ("tokenizer.ggml.token_type", ARR, (I32, self.kinds)),
                ("tokenizer.ggml.scores", ARR, (F32, self.scores)),
                ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2),
                ("tokenizer.ggml.add_bos_token", BOOL, True)]


# ---- Gemma 4: listed merges over text as it is ----

class RawBpe:
    """As Spm, but merges are listed and have ranks. Runs of newlines are tokens that no merge
    gives, and nothing merges with a newline."""
    FIRST = 4 + 256

    def __init__(self, merges, chars, users=("<|x|>", "\u2581\u2581\u2581")):
        self.merges, self.users = merges, list(users)
        self.rank = {pair: i for i, pair in enumerate(merges)}
        pieces = ["\n" * n for n in (1, 2, 3, 4)] + chars + [a + b for a, b in merges]
        self.tokens = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{b:02X}>" for b in range(256)),
                       *pieces, *users, "<turn|>"]
        self.kinds = [CONTROL] * 3 + [UNKNOWN] + [BYTE] * 256 + [NORMAL] * len(pieces) + [
            USER] * len(self.users) + [CONTROL]
        self.id = {token: i for i, token in enumerate(self.tokens) if self.kinds[i] in (NORMAL, USER)}

    @classmethod
    def train(cls, counts, num_merges):
        words = collections.Counter()
        for text, count in counts.items():
            for word in re.split(r"(?= )|\n", text):
                words[tuple(word.replace(" ", "\u2581"))] += count
        return cls(learn(words, num_merges), sorted({c for word in words for c in word}))

    def encode(self, text):
        ids = []
        users = {user.replace("\u2581", " "): user for user in self.users}
        split = "|".join(map(re.escape, sorted(users, key=len, reverse=True)))
        for part in re.split(f"({split})", text):
            if part in users:
                ids.append(self.id[users[part]])
                continue
            for piece in re.findall(r"\n+|[^\n]+", part):
                ids += [self.id[piece]] if piece in self.id and piece[0] == "\n" else self.line(piece)
        return ids

    def line(self, line):
        parts = list(line.replace(" ", "\u2581"))
        while len(parts) > 1:
            pair = min(zip(parts, parts[1:]), key=lambda p: self.rank.get(p, len(self.rank)))
            if pair not in self.rank:
                break
            at = list(zip(parts, parts[1:])).index(pair)
            parts[at:at + 2] = [pair[0] + pair[1]]
        ids = []
        for part in parts:
            ids += [self.id[part]] if part in self.id else [4 + b for b in part.encode()]
        return ids

    def keys(self):
        return [("tokenizer.ggml.model", STR, "gemma4"),
                ("tokenizer.ggml.tokens", ARR, (STR, self.tokens)),
                ("tokenizer.ggml.token_type", ARR, (I32, self.kinds)),
                ("tokenizer.ggml.merges", ARR, (STR, [" ".join(pair) for pair in self.merges])),
                ("tokenizer.ggml.bos_token_id", U32, 2), ("tokenizer.ggml.eos_token_id", U32, 1),
                ("tokenizer.ggml.unknown_token_id", U32, 3),
                ("tokenizer.ggml.add_bos_token", BOOL, False)]
