"""GGUF's tensor types in float64, written from the formats' definitions: the judge of
src/gguf/quant.c and of the kernels in tests, and what quantize.py and make-model.py write.

decode(type, bytes) is the exact real number of every value (float64 holds all of them).
encode(type, values) rounds to nearest: scales that reach a group's largest number (and smallest, of
types with a minimum), as the format rounds them, and then the nearest code for every value. Nothing
is searched for, nor weighted by what activations are like.
Numbers of a block are named as in the format: d, m or dmin, s (scales), qs, qh."""
import numpy as np

# name: (number in the file, values per block, bytes per block)
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20),
         "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84),
         "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
         "Q6_K": (14, 256, 210), "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136),
         "BF16": (30, 1, 2), "MXFP4": (39, 32, 17)}
FP4 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6])  # codes 0 to 7; with 8 more they are negative
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


def half(raw):
    return np.ascontiguousarray(raw).view("<f2").astype(np.float64)


def nibbles(qs):
    """[blocks, n] bytes -> [blocks, 2n]: all low halves, then all high ones."""
    return np.concatenate([qs & 15, qs >> 4], axis=1).astype(np.int64)


def bits(raw):
    """[blocks, n] bytes -> [blocks, 8n] bits, lowest first."""
    return np.unpackbits(np.ascontiguousarray(raw), axis=1, bitorder="little").astype(np.int64)


def k_scales(s):
    """12 bytes -> 8 scales and 8 minima of six bits."""
    s = s.astype(np.int64)
    low, mid, top = s[:, 0:4], s[:, 4:8], s[:, 8:12]
    scales = np.concatenate([low % 64, top % 16 + 16 * (low // 64)], axis=1)
    mins = np.concatenate([mid % 64, top // 16 + 16 * (mid // 64)], axis=1)
    return scales, mins


def k_numbers(qs):
    """Four runs of 32 bytes; each holds a group in its low and one in its high halves."""
    return nibbles(qs.reshape(-1, 32)).reshape(-1, 256)


def crumbs(qs):
    """Two halves of 32 bytes; each has four runs of 32 numbers of two bits, lowest first."""
    halves = qs.reshape(-1, 2, 1, 32).astype(np.int64)
    return (halves >> np.array([0, 2, 4, 6])[:, None] & 3).reshape(-1, 256)


def q3_k_scales(s):
    """12 bytes -> 16 scales of six bits: four in a half of the first eight bytes, two in the rest."""
    s = s.astype(np.int64)
    high = (s[:, None, 8:] >> np.array([0, 2, 4, 6])[:, None] & 3).reshape(-1, 16)
    return np.concatenate([s[:, :8] & 15, s[:, :8] >> 4], axis=1) + 16 * high - 32


def iq4_xs_scales(s):
    """6 bytes -> 8 scales of six bits: the first two bytes are the upper bits, two each."""
    s = s.astype(np.int64)
    low = np.stack([s[:, 2:] & 15, s[:, 2:] >> 4], axis=2).reshape(-1, 8)
    return low + 16 * (s[:, :2, None] >> np.array([0, 2, 4, 6]) & 3).reshape(-1, 8) - 32


def decode(name, raw):
    _, values, size = TYPES[name]
    raw = np.frombuffer(bytes(raw), np.uint8)
    with np.errstate(all="ignore"):
        if name == "F32":
            return raw.view("<f4").astype(np.float64)
        if name == "F16":
            return half(raw)
        if name == "BF16":
            return (raw.view("<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
        b = raw.reshape(-1, size)
        if name == "MXFP4":  # a power of two, 127 more than its exponent; no NaN among the bytes
            codes = nibbles(b[:, 1:])
            y = np.where(codes & 8, -FP4[codes & 7], FP4[codes & 7]) + 0.0  # its zero has no sign
            return np.ldexp(y, b[:, :1].astype(np.int64) - 127).reshape(-1)
        d = half(b[:, 0:2])
        if name == "Q4_0":
            y = d * (nibbles(b[:, 2:]) - 8)
        elif name == "Q4_1":
            y = d * nibbles(b[:, 4:]) + half(b[:, 2:4])
        elif name == "Q5_0":
            y = d * (nibbles(b[:, 6:]) + 16 * bits(b[:, 2:6]) - 16)
        elif name == "Q5_1":
            y = d * (nibbles(b[:, 8:]) + 16 * bits(b[:, 4:8])) + half(b[:, 2:4])
        elif name == "Q8_0":
            y = d * b[:, 2:].view(np.int8).astype(np.int64)
        elif name in ("Q4_K", "Q5_K"):
            scales, mins = k_scales(b[:, 4:16])
            q = k_numbers(b[:, -128:])
            if name == "Q5_K":  # bit g of byte i: value i of group g
                high = bits(b[:, 16:48]).reshape(-1, 32, 8).transpose(0, 2, 1)
                q = q + 16 * high.reshape(-1, 256)
            scale, low = d * scales, half(b[:, 2:4]) * mins
            y = np.repeat(scale, 32, axis=1) * q - np.repeat(low, 32, axis=1)
        elif name == "IQ4_NL":
            y = d * IQ4[nibbles(b[:, 2:])]
        elif name == "IQ4_XS":
            codes = nibbles(b[:, 8:].reshape(-1, 16)).reshape(-1, 256)
            y = np.repeat(d * iq4_xs_scales(b[:, 2:8]), 32, axis=1) * IQ4[codes]
        elif name == "Q2_K":
            s = b[:, :16].astype(np.int64)
            scale, low = half(b[:, 80:82]) * (s & 15), half(b[:, 82:84]) * (s >> 4)
            y = np.repeat(scale, 16, axis=1) * crumbs(b[:, 16:80]) - np.repeat(low, 16, axis=1)
        elif name == "Q3_K":  # bit g of byte i: value i of group g
            third = bits(b[:, :32]).reshape(-1, 32, 8).transpose(0, 2, 1).reshape(-1, 256)
            q = crumbs(b[:, 32:96]) + 4 * third - 4
            y = np.repeat(half(b[:, 108:110]) * q3_k_scales(b[:, 96:108]), 16, axis=1) * q
        elif name == "Q6_K":
            d = half(b[:, 208:210])
            q = np.empty((len(b), 256), np.int64)
            for h in range(2):
                ql = nibbles(b[:, 64 * h:64 * h + 64])
                qh = b[:, 128 + 32 * h:160 + 32 * h].astype(np.int64)
                high = np.concatenate([qh >> s & 3 for s in (0, 2, 4, 6)], axis=1)
                q[:, 128 * h:128 * h + 128] = ql + 16 * high
            s = b[:, 192:208].view(np.int8).astype(np.int64)
            y = np.repeat(d * s, 16, axis=1) * (q - 32)
        else:
            raise ValueError(name)
        return y.reshape(-1)


def put_half(x):
    return x.astype("<f2").view(np.uint8).reshape(len(x), 2)


def pack_nibbles(q):
    n = q.shape[1] // 2
    return (q[:, :n] | q[:, n:] << 4).astype(np.uint8)


def pack_bits(b):
    return np.packbits(b.astype(np.uint8), axis=1, bitorder="little")


def divide(x, d):
    return np.where(d != 0, x / np.where(d != 0, d, 1), 0)


def affine(x, top):
    """Scale and minimum (<= 0) of groups along the last axis."""
    low = np.minimum(x.min(axis=-1), 0)
    return (x.max(axis=-1) - low) / top, -low


def peaks(x):
    """What is largest in size along the last axis, with its sign."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], axis=-1)[..., 0]


def nearest(table, x):
    """Places in a table that ascends."""
    return np.searchsorted((table[1:] + table[:-1]) / 2, x)


def iq4_scale(x):
    """Of groups along the last axis: the peak becomes -127, or 113 where that is nearer."""
    scales = np.stack([peaks(x) / -127, peaks(x) / 113])
    errors = []
    for d in scales:
        q = IQ4[nearest(IQ4, divide(x, d[..., None]))]
        errors.append(np.square(x - d[..., None] * q).sum(axis=-1))
    return np.where(errors[0] <= errors[1], scales[0], scales[1])


def pack_crumbs(q):
    return (q.reshape(-1, 2, 4, 32) << np.array([0, 2, 4, 6])[:, None]).sum(axis=2).astype(
        np.uint8).reshape(-1, 64)


def encode(name, x):
    x = np.asarray(x, np.float64).reshape(-1)
    if name == "F32":
        return x.astype("<f4").tobytes()
    if name == "F16":
        return x.astype("<f2").tobytes()
    if name == "BF16":
        u = x.astype("<f4").view("<u4").astype(np.uint64)
        return ((u + 0x7fff + (u >> 16 & 1)) >> 16).astype("<u2").tobytes()
    b = x.reshape(-1, TYPES[name][1])
    n = len(b)
    if name in ("Q4_0", "Q5_0", "Q8_0"):
        top = {"Q4_0": 8, "Q5_0": 16, "Q8_0": 127}[name]
        peak = peaks(b)
        d = (np.abs(peak) / 127 if name == "Q8_0" else -peak / top).astype("<f2")
        q = np.rint(divide(b, d.astype(np.float64)[:, None])).astype(np.int64)
        if name == "Q8_0":
            parts = [put_half(d), np.clip(q, -127, 127).astype(np.int8).view(np.uint8)]
        else:
            q = np.clip(q + top, 0, 2 * top - 1)
            parts = [put_half(d)] + ([pack_bits(q >> 4)] if top == 16 else []) + [pack_nibbles(q & 15)]
    elif name == "MXFP4":
        e = np.frexp(np.abs(b).max(axis=1))[1] - 3  # the largest becomes 4 to 8
        size = np.abs(np.ldexp(b, -e[:, None]))
        q = nearest(FP4, size) | (b < 0) << 3
        parts = [(np.clip(e, -127, 127) + 127).astype(np.uint8)[:, None], pack_nibbles(q)]
    elif name in ("Q4_1", "Q5_1"):
        top = 15 if name == "Q4_1" else 31
        d, low = affine(b, top)
        d, low = d.astype("<f2"), (-low).astype("<f2")
        q = divide(b - low.astype(np.float64)[:, None], d.astype(np.float64)[:, None])
        q = np.clip(np.rint(q), 0, top).astype(np.int64)
        parts = [put_half(d), put_half(low)]
        parts += ([pack_bits(q >> 4)] if top == 31 else []) + [pack_nibbles(q & 15)]
    elif name in ("Q4_K", "Q5_K"):
        top = 15 if name == "Q4_K" else 31
        scale, low = affine(b.reshape(n, 8, 32), top)
        d, dmin = (scale.max(axis=1) / 63).astype("<f2"), (low.max(axis=1) / 63).astype("<f2")
        d64, dmin64 = d.astype(np.float64)[:, None], dmin.astype(np.float64)[:, None]
        s = np.clip(np.rint(divide(scale, d64)), 0, 63).astype(np.int64)
        m = np.clip(np.rint(divide(low, dmin64)), 0, 63).astype(np.int64)
        q = divide(b.reshape(n, 8, 32) + (dmin64 * m)[:, :, None], (d64 * s)[:, :, None])
        q = np.clip(np.rint(q), 0, top).astype(np.int64)
        packed = np.concatenate([s[:, :4] | s[:, 4:] >> 4 << 6, m[:, :4] | m[:, 4:] >> 4 << 6,
                                 s[:, 4:] & 15 | (m[:, 4:] & 15) << 4], axis=1).astype(np.uint8)
        parts = [put_half(d), put_half(dmin), packed]
        if top == 31:
            parts.append(pack_bits((q >> 4).transpose(0, 2, 1).reshape(n, 256)))
        parts.append(pack_nibbles((q & 15).reshape(-1, 64)).reshape(n, 128))
    elif name == "IQ4_NL":
        d = iq4_scale(b).astype("<f2")
        q = nearest(IQ4, divide(b, d.astype(np.float64)[:, None]))
        parts = [put_half(d), pack_nibbles(q)]
    elif name == "IQ4_XS":
        g = b.reshape(n, 8, 32)
        scale = iq4_scale(g)
        d = (peaks(scale) / -32).astype("<f2")
        s = np.clip(np.rint(divide(scale, d.astype(np.float64)[:, None])), -32, 31)
        q = nearest(IQ4, divide(g, (d.astype(np.float64)[:, None] * s)[:, :, None]))
        s = s.astype(np.int64) + 32
        high = ((s >> 4).reshape(n, 2, 4) << np.array([0, 2, 4, 6])).sum(axis=2).astype(np.uint8)
        low = (s[:, 0::2] & 15 | (s[:, 1::2] & 15) << 4).astype(np.uint8)
        parts = [put_half(d), high, low, pack_nibbles(q.reshape(-1, 32)).reshape(n, 128)]
    elif name == "Q2_K":
        g = b.reshape(n, 16, 16)
        scale, low = affine(g, 3)
        d, dmin = (scale.max(axis=1) / 15).astype("<f2"), (low.max(axis=1) / 15).astype("<f2")
        d64, dmin64 = d.astype(np.float64)[:, None], dmin.astype(np.float64)[:, None]
        s = np.clip(np.rint(divide(scale, d64)), 0, 15).astype(np.int64)
        m = np.clip(np.rint(divide(low, dmin64)), 0, 15).astype(np.int64)
        q = divide(g + (dmin64 * m)[:, :, None], (d64 * s)[:, :, None])
        q = np.clip(np.rint(q), 0, 3).astype(np.int64)
        parts = [(s | m << 4).astype(np.uint8), pack_crumbs(q), put_half(d), put_half(dmin)]
    elif name == "Q3_K":
        g = b.reshape(n, 16, 16)
        scale = peaks(g) / -4
        d = (peaks(scale) / -32).astype("<f2")
        s = np.clip(np.rint(divide(scale, d.astype(np.float64)[:, None])), -32, 31)
        q = np.rint(divide(g, (d.astype(np.float64)[:, None] * s)[:, :, None])) + 4
        q = np.clip(q, 0, 7).astype(np.int64).reshape(n, 256)
        third = pack_bits((q >> 2).reshape(n, 8, 32).transpose(0, 2, 1).reshape(n, 256))
        s = s.astype(np.int64) + 32
        high = ((s >> 4).reshape(n, 4, 4) << np.array([0, 2, 4, 6])[:, None]).sum(axis=1)
        low = s[:, :8] & 15 | (s[:, 8:] & 15) << 4
        parts = [third, pack_crumbs(q & 3), np.concatenate([low, high], axis=1).astype(np.uint8),
                 put_half(d)]
    elif name == "Q6_K":
        g = b.reshape(n, 16, 16)
        scale = -peaks(g) / 32
        d = (np.abs(scale).max(axis=1) / 127).astype("<f2")
        s = np.clip(np.rint(divide(scale, d.astype(np.float64)[:, None])), -128, 127)
        q = np.rint(divide(g, (d.astype(np.float64)[:, None] * s)[:, :, None])) + 32
        q = np.clip(q, 0, 63).astype(np.int64).reshape(n, 2, 128)
        ql = pack_nibbles((q & 15).reshape(-1, 128)).reshape(n, 128)
        high = (q >> 4).reshape(n, 2, 4, 32)
        qh = (high << np.array([0, 2, 4, 6])[:, None]).sum(axis=2).astype(np.uint8).reshape(n, 64)
        parts = [ql, qh, s.astype(np.int8).view(np.uint8), put_half(d)]
    else:
        raise ValueError(name)
    return np.concatenate(parts, axis=1).tobytes()
