"""texts.py - what vocabularies of tests are learnt from and tried with: small stories, made-up
words of a dozen scripts, and strings that tokenizers are known to differ in."""
import collections
import random

STORY = """Once upon a time there was a little girl who loved to play in the park with her dog.
One day a big red ball rolled down the hill, and the girl ran after it. "Where are you going?" asked
her mother. She said she wanted to see the old tree by the river. The dog was happy and jumped up.
He saw a bird in the tree and said hello. They sat down, had some cake and told each other a story.
Then it was time to go home. The sun went down, the moon came up, and everybody slept until morning.
Tim and Lily found a box under the bed. It was full of toys: a bear, a boat and a blue hat. Tom was
sad because his friend did not want to share. "Do not be sad," said Lily, "we can play with it too!"
They all smiled. The next day they made a small house of wood and stone, with one door and a window.
"""
NAMES = "Lily Tim Tom Ben Anna Max Sue Sam Mia Jack".split()
THINGS = "dog cat ball tree box bird boat cake hat bear house flower car toy book fish".split()
WHAT = "big red little happy old sad small blue kind new funny good".split()
DID = "saw found liked wanted made loved took had gave lost".split()


def stories(sentences=1500):
    """{sentence: count}, English for small children."""
    rng, counts = random.Random(7), collections.Counter()
    for line in STORY.replace("\n", " ").split(". "):
        counts[line + "."] += 200
    for _ in range(sentences):
        a, b = rng.choice(NAMES), rng.choice(NAMES)
        thing, what = rng.choice(THINGS), rng.choice(WHAT)
        counts[rng.choice([
            f"One day, {a} {rng.choice(DID)} a {what} {thing}.",
            f'"I want the {thing}," said {a}. {b} was {what}.',
            f"{a} and {b} went to the park to play with the {what} {thing}.",
            f"The {what} {thing} was in the {rng.choice(THINGS)}.",
            f"Once upon a time, there was a {what} {thing}."])] += 1
    return counts


# (first, last) characters of scripts, and how words are put apart.
SCRIPTS = [("az", " "), ("az", " "), ("az", " "), ("àÿ", " "), ("άώ", " "), ("ая", " "), ("את", " "),
           ("ءي", " "), ("कह", " "), ("กฮ", ""), ("ぁん", ""), ("ァヴ", ""), ("가힣", " "), ("一龥", "")]


def world(words=400):
    """{text: count} of many scripts, numbers and program text. A script's words are of syllables
    that return, so that there is something to learn."""
    rng, counts = random.Random(11), stories(300)
    for (first, last), space in SCRIPTS:
        chars = [chr(c) for c in range(ord(first), ord(last) + 1)]
        syllables = ["".join(rng.choices(chars, k=rng.randint(1, 3))) for _ in range(60)]
        for _ in range(words // 4):
            word = "".join(rng.choices(syllables, k=rng.randint(1, 3)))
            counts[space + rng.choice([word, word.capitalize()])] += rng.randint(1, 40)
    for _ in range(words // 4):
        counts[str(rng.randrange(10 ** rng.randint(1, 6)))] += 3
        counts[f"    if ({rng.choice('xyz')} != {rng.randrange(100)}) {{\n        return;\n    }}\n"] += 1
    for text in ("don't", "it's", "we'll", "I've", "they're", "\n\n", "  ", "\t", "🙂", "🎉🎉", "...",
                 "==", "//", "</", "http://", "é", "ü"):
        counts[text] += 60
    return counts


ODD = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\n\n\n", "\t\n", " \n ", "\r\n", "\r\n\r\n x",
    "Hello world", " Hello world", "Hello World", " Hello World!", "Hello, world!",
    " this is 🦙.cpp", "w048 7tuijk dsdfhu", "нещо на Български", "кирилица", "កាន់តែពិសេសអាចខលចេញ",
    "🚀 (normal) 😶‍🌫️ (joined) ✅", "Hello", "   Hello", "    Hello\n    Hello", " (", "\n =",
    "' era", "Hello, y'all! How are you 😁 ?我想在apple工作1314151天～", "!!!!!!", "3", "33", "333", "3333",
    "33333", "333333", "3 4 12 1234567", "Cửa Việt", " discards", "I'M she'LL 'S 's",
    "don't DON'T it's we've they'd", "a\u00a0b\u3000c\u2009d", "e\u0301 \u00e9 n\u0303",
    "\u1100\u1161\u11a8 각", "x=1;y=2//z", "</s><s>[INST]", "<|end|> is not one here",
    "tab\tand\x0bmore\x0c", "a" * 70, "ab" * 40, " " * 33 + "x", "\n" * 9 + "y", "1 2 3 4",
    "½ ² Ⅻ ①", "_under_score_", "Ünïcödé Straße ÜBER", "γειά σου Κόσμε", "שלום עולם",
    "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "こんにちは世界", "안녕하세요 세계", "\u2581already marked",
    "a\u200bb\u200dc\ufeff", "𝔘𝔫𝔦 𝟙𝟚𝟛", "end with space ", "end with line\n",
    "if (x != 1) {\n\treturn;\n}\n", "Once upon a time, there was a radish.",
]


def strings(count=150):
    """ODD, and random runs of the scripts of world() and the signs between them."""
    rng, out = random.Random(13), list(ODD)
    parts = [c for c in " \n\t.,;!?'\"-_/\\()[]{}<>#@$%&*+=~`^|0123456789"] + ["  ", "'s", "'LL", "\r\n", "😀", "é", "ü"]
    words = [w for text in list(world(60)) for w in text.split(" ")]
    for _ in range(count):
        out.append("".join(rng.choice([rng.choice(parts), rng.choice(words), " " + rng.choice(words)])
                           for _ in range(rng.randint(1, 12))))
    return out
