#!/usr/bin/python3
"""make-model.py - writes a GGUF model with random weights and a real model's shape.

    tools/make-model.py --shape llama-110m --type bf16 OUT.gguf
    tools/make-model.py --shape gpt-oss-20b-6l --type mxfp4_moe OUT.gguf
    tools/make-model.py --list

Types are f32, f16, bf16, q8_0 and all that tools/quantize.py has, its mixtures too.

What computes with such a file takes the time that the real model takes, and its tokenizer and chat
template work, so a server can serve it; what it answers is noise. --layers, --vocab, --context and the
other sizes change a shape, e.g. for a small model with a large one's widths.

Weights. Each number is the sum of four uniform ones, scaled: close to normal, within 3.5 standard
deviations, and the same bits for the same --seed with every version of numpy. Every tensor has a stream
of its own, so another type, or another number of layers, leaves a tensor's numbers as they were; a type
only rounds them. Vectors of norms are f32 in every file.

Vocabulary. Byte-level BPE: the 256 bytes, then syllables (a consonant and a vowel), syllables behind a
space, and words of two and three syllables, each made by one merge; at the end four control tokens.

    token id   0 ... 255 | syllables, words ...            | n-4 n-3 n-2 n-1
               bytes     | ba be ... " ba" ... baba ...    | <|endoftext|> <|im_start|> <|im_end|> <|pad|>

Needs python3-numpy. The file is written a piece at a time: 0.1 GB of memory for any size. A core of a Zen 5
takes 2 s for llama-110m (250 MB in bf16) and 5 s for qwen3-0.6b (1.2 GB); q8_0 takes half as long again.
"""
import argparse
import os
import struct
import sys

try:
    import numpy as np
except ImportError:
    sys.exit("make-model: numpy is not here (apt-get install python3-numpy, and run it with /usr/bin/python3)")

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ggml_blocks  # noqa: E402
import quantize  # noqa: E402

ALIGNMENT = 32  # of the tensors in the file
PIECE = 1 << 19  # numbers made at a time: they stay in the processor's cache
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>")
END_OF_TEXT, IM_END, PAD = 4, 2, 1  # places from the vocabulary's end
CONSONANTS, VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiou"
SYLLABLES = len(CONSONANTS) * len(VOWELS)
# Bytes, then syllables without and with a space before them, and words of two and of three.
MOST_TOKENS = 256 + 2 * SYLLABLES * (1 + SYLLABLES + SYLLABLES ** 2) + len(CONTROL)
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

# How large numbers are. `std`: of every matrix, as models are before training. `fan_in`: 1 / sqrt(row
# length), which keeps a small model's activations and logits of a size where a wrong one is seen.
LLAMA = dict(arch="llama", tied=False, rope_base=10000.0, eps=1e-5)
QWEN3 = dict(arch="qwen3", tied=True, rope_base=1000000.0, eps=1e-6)
QWEN3MOE = dict(arch="qwen3moe", tied=False, rope_base=1000000.0, eps=1e-6)
GPT_OSS = dict(arch="gpt-oss", tied=False, rope_base=150000.0, eps=1e-5)
QWEN35 = dict(arch="qwen35", rope_base=1e7, eps=1e-6, tied=False, taps=4)
LFM2 = dict(arch="lfm2", rope_base=1e6, eps=1e-5, tied=True, taps=3)
GRANITEH = dict(arch="granitehybrid", rope_base=1e4, eps=1e-5, tied=True, taps=4)
SHAPES = {
    "nano-llama": dict(LLAMA, layers=4, width=128, heads=8, kv_heads=4, head_width=16, ffn=320, vocab=512,
                       context=2048, weights="fan_in"),
    "nano-qwen3": dict(QWEN3, layers=4, width=128, heads=8, kv_heads=4, head_width=32, ffn=256, vocab=512,
                       context=2048, weights="fan_in"),
    "tiny-llama": dict(LLAMA, layers=4, width=256, heads=8, kv_heads=4, head_width=32, ffn=512, vocab=512,
                       context=4096, weights="fan_in"),
    "tiny-qwen3": dict(QWEN3, layers=4, width=256, heads=8, kv_heads=4, head_width=32, ffn=512, vocab=512,
                       context=4096, weights="fan_in"),
    "llama-110m": dict(LLAMA, layers=12, width=768, heads=12, kv_heads=4, head_width=64, ffn=2048,
                       vocab=32000, context=32768, weights="std"),
    "qwen3-0.6b": dict(QWEN3, layers=28, width=1024, heads=16, kv_heads=8, head_width=128, ffn=3072,
                       vocab=151936, context=40960, weights="std"),
    "nano-moe": dict(QWEN3MOE, layers=3, width=128, heads=8, kv_heads=4, head_width=32, ffn=256, vocab=512,
                     context=2048, experts=16, used=4, expert_ffn=64, weights="fan_in"),
    # Qwen3-30B-A3B's widths in six layers of 48.
    "qwen3-30b-a3b-6l": dict(QWEN3MOE, layers=6, width=2048, heads=32, kv_heads=4, head_width=128, ffn=6144,
                             vocab=151936, context=40960, experts=128, used=8, expert_ffn=768,
                             weights="std"),
    # gpt-oss-20b's in six of 24.
    "gpt-oss-20b-6l": dict(GPT_OSS, layers=6, width=2880, heads=64, kv_heads=8, head_width=64, ffn=2880,
                           vocab=201088, context=131072, experts=32, used=4, expert_ffn=2880,
                           window=128, weights="std"),
    # Recurrent layers: all but those of `attention`.
    "nano-qwen35": dict(QWEN35, layers=8, width=128, heads=4, kv_heads=2, head_width=32, ffn=256, vocab=512,
                        context=2048, attention=range(3, 512, 4), state_heads=4, state_groups=2, state_key=32,
                        state_value=32, weights="fan_in"),
    "nano-qwen35moe": dict(QWEN35, arch="qwen35moe", layers=4, width=128, heads=4, kv_heads=2, head_width=32,
                           ffn=64, vocab=512, context=2048, attention=(3,), state_heads=4, state_groups=2,
                           state_key=32, state_value=32, experts=8, used=2, expert_ffn=64, shared_ffn=64,
                           weights="fan_in"),
    "nano-lfm2moe": dict(LFM2, arch="lfm2moe", layers=3, width=128, heads=4, kv_heads=2, head_width=32,
                         ffn=64, vocab=512, context=2048, attention=(2,), experts=8, used=2, expert_ffn=64,
                         weights="fan_in"),
    "nano-lfm2": dict(LFM2, layers=6, width=128, heads=4, kv_heads=2, head_width=32, ffn=256, vocab=512,
                      context=2048, attention=(2, 5), weights="fan_in"),
    "nano-granite-h": dict(GRANITEH, layers=4, width=128, heads=4, kv_heads=2, head_width=32, ffn=64,
                           vocab=512, context=2048, attention=range(3, 512, 4), state_heads=4,
                           state_groups=1, state_key=32, state_value=32, experts=8, used=2, expert_ffn=64,
                           shared_ffn=64, weights="fan_in"),
    # Tied: a head's guess reads a third of the weights.
    "qwen3.5-0.8b": dict(QWEN35, tied=True, layers=24, width=1024, heads=8, kv_heads=2, head_width=256,
                         ffn=3584, vocab=248320, context=262144, attention=range(3, 512, 4), state_heads=16,
                         state_groups=16, state_key=128, state_value=128, weights="std"),
    # Eight layers of Qwen3.6-35B-A3B's 40.
    "qwen3.6-35b-a3b-8l": dict(QWEN35, arch="qwen35moe", layers=8, width=2048, heads=16, kv_heads=2,
                               head_width=256, ffn=512, vocab=248320, context=262144,
                               attention=range(3, 512, 4), state_heads=32, state_groups=16, state_key=128,
                               state_value=128, experts=256, used=8, expert_ffn=512, shared_ffn=512,
                               weights="std"),
    "lfm2-1.2b": dict(LFM2, layers=16, width=2048, heads=32, kv_heads=8, head_width=64, ffn=8192,
                      vocab=65536, context=128000, attention=(2, 5, 8, 10, 12, 14), weights="std"),
    "granite-4-h-tiny": dict(GRANITEH, layers=40, width=1536, heads=12, kv_heads=4, head_width=128, ffn=512,
                             vocab=100352, context=131072, attention=range(5, 512, 10), state_heads=48,
                             state_groups=1, state_key=128, state_value=64, experts=64, used=6,
                             expert_ffn=512, shared_ffn=1024, weights="std"),
    # A large model's widths in two layers.
    "llama-8b-2l": dict(LLAMA, rope_base=500000.0, layers=2, width=4096, heads=32, kv_heads=8,
                        head_width=128, ffn=14336, vocab=32000, context=32768, weights="std"),
}
SIZES = {"layers": "blocks", "width": "of the residual stream", "heads": "of queries",
         "kv_heads": "of keys and values", "head_width": "numbers in a head", "ffn": "width of the MLP",
         "vocab": "tokens", "context": "longest sequence"}
# Of mixtures of experts, besides.
EXPERTS = {"experts": "in each layer", "used": "by a token", "expert_ffn": "width of one"}

# name: (number in a tensor's entry, numbers in a block, its bytes)
TYPES = {name.lower(): sizes for name, sizes in ggml_blocks.TYPES.items()}
MIXTURES = [name.lower() for name in quantize.MIXTURES]


# ---- weights ----

def random_numbers(stream, count):
    """The next `count` numbers of a stream: mean 0, standard deviation 1."""
    low = np.uint64(0x0000FFFF0000FFFF)
    bits = stream.random_raw(count)
    pairs = (bits & low) + ((bits >> np.uint64(16)) & low)  # two sums of two 16-bit numbers
    sums = (pairs & np.uint64(0xFFFFFFFF)) + (pairs >> np.uint64(32))
    out = sums.astype(np.float32)
    out -= np.float32(2 * 65535)
    out *= np.float32((12 / 4) ** 0.5 / 65536)  # the variance of one is 65536^2 / 12
    return out


def as_bf16(x):
    bits = x.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >>
            np.uint32(16)).astype("<u2")  # to nearest, ties to even


def as_q8_0(x):
    """Blocks of 32: an f16 scale, then 32 bytes that are multiples of it."""
    blocks = x.reshape(-1, 32)
    scale = np.maximum(blocks.max(axis=1), -blocks.min(axis=1)) * np.float32(1 / 127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    out = np.empty(len(blocks), dtype=[("scale", "<f2"), ("numbers", "i1", 32)])
    out["scale"] = scale
    out["numbers"] = np.rint(blocks * inverse[:, None])
    return out


ENCODE = {"f32": lambda x: x.astype("<f4", copy=False), "f16": lambda x: x.astype("<f2"), "bf16": as_bf16,
          "q8_0": as_q8_0}


def tensors(c):
    """(name, (rows, row length) or (length,), scale) in the file's order; vectors lie about 1."""
    fan_in = c["weights"] == "fan_in"
    wide, queries, keys = c["width"], c["heads"] * c["head_width"], c["kv_heads"] * c["head_width"]

    def matrix(name, rows, columns, small_scale=None):
        return name, (rows, columns), (small_scale or columns ** -0.5) if fan_in else 0.02

    def experts(name, rows, columns):
        return name, (c["experts"], rows, columns), columns ** -0.5 if fan_in else 0.02

    def norm(name, length):
        return name, (length,), 0.1 if fan_in else 0.0

    # A tied embedding is the output matrix too, and an untied one is only looked up.
    delta, mamba, conv = (c["arch"].startswith(arch) for arch in ("qwen35", "granitehybrid", "lfm2"))
    heads, inner = c.get("state_heads", 0), c.get("state_heads", 0) * c.get("state_value", 0)
    channels = wide if conv else inner + 2 * c.get("state_groups", 0) * c.get("state_key", 0)
    yield matrix("token_embd.weight", c["vocab"], wide, 0.12 if c["tied"] else 0.5)
    for layer in range(c["layers"] + c["nextn"]):
        block = f"blk.{layer}."
        if layer >= c["layers"]:
            for name in "enorm", "hnorm", "shared_head_norm":
                yield norm(f"{block}nextn.{name}.weight", wide)
            yield matrix(block + "nextn.eh_proj.weight", wide, 2 * wide)
        yield norm(block + "attn_norm.weight", wide)
        if is_recurrent(c, layer) and conv:
            yield matrix(block + "shortconv.in_proj.weight", 3 * wide, wide)
            yield block + "shortconv.conv.weight", (wide, c["taps"]), 0.5
            yield matrix(block + "shortconv.out_proj.weight", wide, wide)
        elif is_recurrent(c, layer):
            if delta:
                yield matrix(block + "attn_qkv.weight", channels, wide)
                yield matrix(block + "attn_gate.weight", inner, wide)
                yield matrix(block + "ssm_alpha.weight", heads, wide)
                yield matrix(block + "ssm_beta.weight", heads, wide)
                yield norm(block + "ssm_norm.weight", c["state_value"])
                yield block + "ssm_a", (heads,), 0.1
            else:
                yield matrix(block + "ssm_in.weight", inner + channels + heads, wide)
                yield block + "ssm_conv1d.bias", (channels,), 0.1
                yield block + "ssm_norm.weight", (c["state_groups"], inner // c["state_groups"]), 0.1
                yield block + "ssm_a", (heads, 1), 0.1
                yield block + "ssm_d", (heads, 1), 0.1
            yield block + "ssm_conv1d.weight", (channels, c["taps"]), 0.5
            yield block + "ssm_dt.bias", (heads,), 0.5
            yield matrix(block + "ssm_out.weight", wide, inner)
        else:
            yield matrix(block + "attn_q.weight", queries * (2 if delta else 1), wide)
            yield matrix(block + "attn_k.weight", keys, wide)
            yield matrix(block + "attn_v.weight", keys, wide)
            yield matrix(block + "attn_output.weight", wide, queries)
        if c["arch"] == "gpt-oss":
            for part, length in (("q", queries), ("k", keys), ("v", keys), ("output", wide)):
                yield block + f"attn_{part}.bias", (length,), 0.1
            yield block + "attn_sinks.weight", (c["heads"],), 1
        if (c["arch"].startswith("qwen3") or conv) and not is_recurrent(c, layer):
            yield norm(block + "attn_q_norm.weight", c["head_width"])
            yield norm(block + "attn_k_norm.weight", c["head_width"])
        late = delta or c["arch"] == "gpt-oss"
        yield norm(block + ("post_attention_norm.weight" if late else "ffn_norm.weight"), wide)
        if "experts" in c:
            yield matrix(block + "ffn_gate_inp.weight", c["experts"], wide, 2 * wide ** -0.5)
            for part, rows, columns in (("gate", c["expert_ffn"], wide), ("up", c["expert_ffn"], wide),
                                        ("down", wide, c["expert_ffn"])):
                yield experts(block + f"ffn_{part}_exps.weight", rows, columns)
                if c["arch"] == "gpt-oss":
                    yield block + f"ffn_{part}_exps.bias", (c["experts"], rows), 0.1
            if c["arch"] == "gpt-oss":
                yield block + "ffn_gate_inp.bias", (c["experts"],), 0.1
            if "shared_ffn" in c:
                yield matrix(block + "ffn_gate_shexp.weight", c["shared_ffn"], wide)
                yield matrix(block + "ffn_up_shexp.weight", c["shared_ffn"], wide)
                yield matrix(block + "ffn_down_shexp.weight", wide, c["shared_ffn"])
            if delta:
                yield block + "ffn_gate_inp_shexp.weight", (wide,), wide ** -0.5
            continue
        yield matrix(block + "ffn_gate.weight", c["ffn"], wide)
        yield matrix(block + "ffn_up.weight", c["ffn"], wide)
        yield matrix(block + "ffn_down.weight", wide, c["ffn"])
    yield norm("token_embd_norm.weight" if conv else "output_norm.weight", wide)
    if not c["tied"]:
        yield matrix("output.weight", c["vocab"], wide, 0.1)


def is_recurrent(c, layer):
    return "attention" in c and layer not in c["attention"] and layer < c["layers"]


def middle(name, shape):
    """About what a tensor's numbers lie: vectors are norms' but for these."""
    if name.endswith(".ssm_a"):
        return -0.5  # states decay
    if name.endswith((".bias", "_inp_shexp.weight", "conv1d.weight", "conv.weight")):
        return 0
    return 1 if len(shape) == 1 or ".ssm_norm." in name or name.endswith(".ssm_d") else 0


def write_tensor(out, name, shape, scale, kind, seed):
    # The name picks the stream: a tensor has the same numbers whatever comes before it.
    stream = np.random.SFC64([seed, *name.encode()])
    count = int(np.prod(shape))
    for start in range(0, count, PIECE):
        x = random_numbers(stream, min(PIECE, count - start))
        x *= np.float32(scale)
        if middle(name, shape):
            x += np.float32(middle(name, shape))
        out.write(ENCODE[kind](x) if kind in ENCODE else ggml_blocks.encode(kind.upper(), x))
    out.write(b"\0" * (-out.tell() % ALIGNMENT))


# ---- vocabulary ----

def byte_names():
    """How byte-level BPE writes each byte as a character: printable ones as they are, the others from
    U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def vocabulary(size):
    """(tokens, merges): every token that is neither a byte nor control is made by one merge."""
    tokens = byte_names()
    space = tokens[ord(" ")]
    room = size - len(tokens) - len(CONTROL)
    merges = []

    def add(pairs):
        made = []
        for left, right in pairs:
            if len(merges) == room:
                break
            merges.append(f"{left} {right}")
            made.append(left + right)
        tokens.extend(made)
        return made

    syllables = add((c, v) for c in CONSONANTS for v in VOWELS)
    starts = add((space, syllable) for syllable in syllables)
    words = add((start, end) for start in starts + syllables for end in syllables)
    add((word, end) for word in words for end in syllables)
    return tokens + list(CONTROL), merges


# ---- the file ----

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    """A key and its value; that of an ARRAY is (kind of the items, items)."""
    head = string(key) + struct.pack("<I", kind)
    if kind == STRING:
        return head + string(value)
    if kind == ARRAY:
        of, items = value
        body = b"".join(map(string, items)) if of == STRING else struct.pack(f"<{len(items)}i", *items)
        return head + struct.pack("<IQ", of, len(items)) + body
    return head + struct.pack({UINT32: "<I", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def metadata(name, c, kind):
    tokens, merges = vocabulary(c["vocab"])
    arch, size = c["arch"], c["vocab"]
    kinds = [1] * (size - len(CONTROL)) + [3] * len(CONTROL)  # 1 normal, 3 control
    numbers = {"context_length": c["context"], "embedding_length": c["width"], "block_count": c["layers"] + c["nextn"],
               "feed_forward_length": c["ffn"], "attention.head_count": c["heads"],
               "attention.head_count_kv": c["kv_heads"], "attention.key_length": c["head_width"],
               "attention.value_length": c["head_width"], "rope.dimension_count": c["head_width"],
               "vocab_size": size}
    if "state_heads" in c:
        numbers.update({"ssm.conv_kernel": c["taps"], "ssm.state_size": c["state_key"],
                        "ssm.group_count": c["state_groups"], "ssm.time_step_rank": c["state_heads"],
                        "ssm.inner_size": c["state_heads"] * c["state_value"]})
    of_layers, floats, flags = {}, {}, {}
    if arch.startswith("qwen35"):
        numbers["full_attention_interval"] = 4
        numbers["rope.dimension_count"] = c["head_width"] // 4
    elif "attention" in c:
        del numbers["attention.head_count_kv"]
        of_layers["attention.head_count_kv"] = [0 if is_recurrent(c, layer) else c["kv_heads"]
                                                for layer in range(c["layers"])]
    if arch in ("lfm2", "lfm2moe"):
        numbers["shortconv.l_cache"] = c["taps"]
    if arch == "granitehybrid":
        flags["rope.scaling.finetuned"] = False  # no RoPE at all
        floats = {"embedding_scale": 12.0, "residual_scale": 0.22, "attention.scale": 1 / 128,
                  "logit_scale": 6.0}
    if "shared_ffn" in c:
        numbers["expert_shared_feed_forward_length"] = c["shared_ffn"]
    if "experts" in c:
        numbers.update({"expert_count": c["experts"], "expert_used_count": c["used"],
                        "expert_feed_forward_length": c["expert_ffn"]})
    if c["nextn"]:
        numbers["nextn_predict_layers"] = c["nextn"]
    if "window" in c:
        numbers["attention.sliding_window"] = c["window"]
    return [
        entry("general.architecture", STRING, arch),
        entry("general.name", STRING, f"{name}-synthetic"),
        entry("general.file_type", UINT32, quantize.FILE_TYPES.get(kind.upper(), 0)),
        entry("general.quantization_version", UINT32, 2),
        entry("general.alignment", UINT32, ALIGNMENT),
        *(entry(f"{arch}.{key}", UINT32, value) for key, value in numbers.items()),
        *(entry(f"{arch}.{key}", ARRAY, (INT32, value)) for key, value in of_layers.items()),
        *(entry(f"{arch}.{key}", FLOAT32, value) for key, value in floats.items()),
        *(entry(f"{arch}.{key}", BOOL, value) for key, value in flags.items()),
        entry(f"{arch}.attention.layer_norm_rms_epsilon", FLOAT32, c["eps"]),
        entry(f"{arch}.rope.freq_base", FLOAT32, c["rope_base"]),
        entry("tokenizer.ggml.model", STRING, "gpt2"),
        entry("tokenizer.ggml.pre", STRING, "gpt-2"),
        entry("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        entry("tokenizer.ggml.token_type", ARRAY, (INT32, kinds)),
        entry("tokenizer.ggml.merges", ARRAY, (STRING, merges)),
        entry("tokenizer.ggml.bos_token_id", UINT32, size - END_OF_TEXT),
        entry("tokenizer.ggml.eos_token_id", UINT32, size - END_OF_TEXT),
        entry("tokenizer.ggml.eot_token_id", UINT32, size - IM_END),
        entry("tokenizer.ggml.padding_token_id", UINT32, size - PAD),
        entry("tokenizer.ggml.add_bos_token", BOOL, False),
        entry("tokenizer.chat_template", STRING, CHAT_TEMPLATE),
    ]


def kind_of(tensor, shape, kind, c):
    """Vectors, what routes tokens and what is not a product's are f32 in every file."""
    small = (".ffn_gate_inp.", ".ssm_norm.", ".ssm_conv1d.", ".shortconv.conv.")
    if len(shape) == 1 or tensor.endswith((".bias", ".ssm_a", ".ssm_d")) or any(part in tensor for part in small):
        return "f32"
    if kind in ENCODE:
        return kind
    return (quantize.chosen(kind.upper(), tensor, shape[::-1], c["layers"], c["tied"]) or "f16").lower()


def num_bytes(tensor, shape, kind, c):
    _, block, block_bytes = TYPES[kind_of(tensor, shape, kind, c)]
    return int(np.prod(shape)) // block * block_bytes


def write_model(path, name, c, kind, seed):
    """Under another name first: a run that is interrupted leaves no half a model."""
    plan = list(tensors(c))
    infos, offset = [], 0
    for tensor, shape, _ in plan:
        infos.append(string(tensor) + struct.pack("<I", len(shape)) +
                     struct.pack(f"<{len(shape)}Q", *reversed(shape)) +  # the row length comes first
                     struct.pack("<IQ", TYPES[kind_of(tensor, shape, kind, c)][0], offset))
        offset += -(-num_bytes(tensor, shape, kind, c) // ALIGNMENT) * ALIGNMENT
    pairs = metadata(name, c, kind)
    part = f"{path}.part"
    try:
        with open(part, "wb") as out:
            out.write(struct.pack("<4sIQQ", b"GGUF", 3, len(plan), len(pairs)))
            out.writelines(pairs + infos)
            out.write(b"\0" * (-out.tell() % ALIGNMENT))
            for tensor, shape, scale in plan:
                write_tensor(out, tensor, shape, scale, kind_of(tensor, shape, kind, c), seed)
            size = out.tell()
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise
    return sum(int(np.prod(shape)) for _, shape, _ in plan), size


# ---- the command ----

def check_shape(name, c, kind):
    """What a shape must keep to; ends with a message that names the option."""
    def need(condition, words):
        if not condition:
            sys.exit(f"make-model: {name}: {words}")
    for key in (key for key in {**SIZES, **EXPERTS} if key in c):
        need(c[key] >= 1, f"--{key.replace('_', '-')} is at least 1")
    need(c["vocab"] >= 256 + len(CONTROL), f"--vocab is at least {256 + len(CONTROL)}: the bytes and "
         "the control tokens")
    need(c["vocab"] <= MOST_TOKENS, f"--vocab is at most {MOST_TOKENS}: no more words are made")
    need(c["heads"] % c["kv_heads"] == 0, "--heads must be a multiple of --kv-heads")
    need(c["head_width"] % 2 == 0, "--head-width must be even: RoPE turns pairs")
    need(c["nextn"] >= 0, "--nextn is 0 or more")
    need(not c["nextn"] or c["arch"].startswith("qwen35"), "--nextn is for the qwen3.5 kinds")
    need(c.get("used", 0) <= c.get("experts", 0), "--used is at most --experts")
    need(not all(is_recurrent(c, layer) for layer in range(c["layers"])), "so few --layers are all recurrent")
    if kind == "q8_0":
        for tensor, shape, _ in tensors(c):
            need(kind_of(tensor, shape, kind, c) == "f32" or shape[-1] % 32 == 0,
                 f"q8_0 has blocks of 32, and rows of {tensor} have {shape[-1]} numbers")


def list_shapes():
    print(f"{'shape':18} {'arch':13} " + " ".join(f"{key:>10}" for key in SIZES) +
          f" {'experts':>14} {'weights':>9} {'bf16':>8}")
    for name, c in SHAPES.items():
        c = dict(c, nextn=0)
        plan = [(shape, num_bytes(tensor, shape, "bf16", c)) for tensor, shape, _ in tensors(c)]
        count, size = sum(int(np.prod(s)) for s, _ in plan), sum(b for _, b in plan)
        mixture = f"{c['used']} of {c['experts']} x {c['expert_ffn']}" if "experts" in c else ""
        print(f"{name:18} {c['arch']:13} " + " ".join(f"{c[key]:10}" for key in SIZES) +
              f" {mixture:>14} {count / 1e6:8.1f}M {size / 1e6:5.0f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT.gguf", nargs="?", help="the file to write")
    parser.add_argument("--shape", choices=list(SHAPES), help="a name that --list shows")
    parser.add_argument("--type", choices=[*TYPES, *MIXTURES], default="bf16", metavar="TYPE",
                        help="of the matrices (bf16)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other weights (1)")
    parser.add_argument("--list", action="store_true", help="show the shapes and end")
    for key, words in SIZES.items():
        parser.add_argument(f"--{key.replace('_', '-')}", type=int, metavar="N",
                            help=f"{words}, in place of the shape's")
    for key, words in EXPERTS.items():
        parser.add_argument(f"--{key.replace('_', '-')}", type=int, metavar="N",
                            help=f"{words}, of a shape with experts")
    parser.add_argument("--nextn", type=int, default=0, metavar="N",
                        help="heads behind the layers that guess further tokens (0)")
    a = parser.parse_args()
    if a.list:
        return list_shapes()
    if not a.shape or not a.out:
        parser.error("--shape and OUT.gguf are needed (or --list)")
    if a.seed < 0:
        parser.error("--seed is 0 or more")
    c = dict(SHAPES[a.shape], nextn=a.nextn)
    for key in {**SIZES, **EXPERTS}:
        if getattr(a, key) is None:
            continue
        if key not in c:
            sys.exit(f"make-model: {a.shape}: --{key.replace('_', '-')}: it has no experts")
        c[key] = getattr(a, key)
    check_shape(a.shape, c, a.type)
    try:
        count, size = write_model(a.out, a.shape, c, a.type, a.seed)
    except OSError as error:
        sys.exit(f"make-model: {error}")
    print(f"{a.out}: {c['arch']}, {a.type}, {count / 1e6:.1f}M weights, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
