#!/usr/bin/python3
"""split-gguf.py - cuts a GGUF file into several, NAME-00001-of-00003.gguf and so on.

    tools/split-gguf.py MODEL.gguf NAME --parts 3
    tools/split-gguf.py MODEL.gguf NAME --max-mb 4000
    tools/split-gguf.py MODEL.gguf NAME --parts 3 --keys-first

Tensors stay in their order and are cut between two of them: --parts makes parts of nearly equal size,
--max-mb as few as keep below so many megabytes each (a tensor that is larger has a part of its own).
The first part has all keys of the file, the others general.architecture and general.name, so that parts
of two models can be told apart; each has split.no, split.count and split.tensors.count. With --keys-first
the first part has no tensors. Bytes are copied as they are, a few megabytes at a time.
"""
import argparse
import os
import struct
import sys

U16, I32, U32, STR, ARR = 2, 5, 4, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
REPEATED = (b"general.architecture", b"general.name")
REPLACED = (b"split.no", b"split.count", b"split.tensors.count")
PIECE = 1 << 22


class Reader:
    def __init__(self, file):
        self.file = file

    def number(self, form):
        size = struct.calcsize("<" + form)
        data = self.file.read(size)
        if len(data) < size:
            sys.exit("split-gguf: the file ends in its metadata")
        return struct.unpack("<" + form, data)[0]

    def string(self):
        return self.file.read(self.number("Q"))

    def skip_value(self, kind):
        if kind == STR:
            self.string()
        elif kind == ARR:
            inner, count = self.number("I"), self.number("Q")
            if inner == STR:
                for _ in range(count):
                    self.string()
            else:
                self.file.seek(count * SIZES[inner], os.SEEK_CUR)
        else:
            self.file.seek(SIZES[kind], os.SEEK_CUR)

    def bytes_since(self, at):
        end = self.file.tell()
        self.file.seek(at)
        return self.file.read(end - at)


def read_head(file):
    """(keys as [(name, their bytes)], tensors as [(bytes without the offset, start, size)], alignment);
    starts are in the file. A tensor's size is what lies between it and the next."""
    r = Reader(file)
    if file.read(4) != b"GGUF" or r.number("I") not in (2, 3):
        sys.exit("split-gguf: not a GGUF file of version 2 or 3")
    num_tensors, num_keys = r.number("Q"), r.number("Q")
    keys, alignment = [], 32
    for _ in range(num_keys):
        at = file.tell()
        name, kind = r.string(), r.number("I")
        if name == b"general.alignment" and kind == U32:
            alignment = r.number("I")
            file.seek(-4, os.SEEK_CUR)
        r.skip_value(kind)
        keys.append((name, r.bytes_since(at)))
    infos = []
    for _ in range(num_tensors):
        at = file.tell()
        r.string()
        file.seek(8 * r.number("I") + 4, os.SEEK_CUR)
        infos.append((r.bytes_since(at), r.number("Q")))
    start = -(-file.tell() // alignment) * alignment
    ends = sorted(offset for _, offset in infos) + [os.fstat(file.fileno()).st_size - start]
    following = {a: b for a, b in zip(ends, ends[1:])}
    return keys, [(info, start + at, following[at] - at) for info, at in infos], alignment


def cut(tensors, parts, most):
    """Lists of tensors, one for each part."""
    if most:
        cuts = [[]]
        for t in tensors:
            if cuts[-1] and sum(size for _, _, size in cuts[-1]) + t[2] > most:
                cuts.append([])
            cuts[-1].append(t)
        return cuts
    if parts > len(tensors):
        sys.exit(f"split-gguf: {parts} parts of {len(tensors)} tensors")
    total, done, cuts = sum(size for _, _, size in tensors), 0, [[] for _ in range(parts)]
    part = 0
    for i, t in enumerate(tensors):
        left = len(tensors) - i
        full = done >= total * (part + 1) / parts
        if cuts[part] and part + 1 < parts and (full or left == parts - part - 1):
            part += 1
        cuts[part].append(t)
        done += t[2]
    return cuts


def split_key(name, kind, form, value):
    return struct.pack("<Q", len(name)) + name + struct.pack("<I" + form, kind, value)


def write_part(path, source, keys, tensors, alignment):
    with open(path, "wb") as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)))
        out.write(b"".join(keys))
        at = 0
        for info, _, size in tensors:
            out.write(info + struct.pack("<Q", at))
            at += -(-size // alignment) * alignment
        for _, start, size in tensors:
            out.write(bytes(-out.tell() % alignment))
            source.seek(start)
            while size:
                piece = source.read(min(size, PIECE))
                if not piece:
                    sys.exit("split-gguf: the file ends in a tensor")
                out.write(piece)
                size -= len(piece)


def split(model, name, parts, most, keys_first):
    with open(model, "rb") as source:
        keys, tensors, alignment = read_head(source)
        cuts = cut(tensors, parts - keys_first if parts else 0, most)
        if keys_first:
            cuts.insert(0, [])
        if len(cuts) > 99999:
            sys.exit("split-gguf: more than 99999 parts")
        for no, part in enumerate(cuts):
            mine = [k for n, k in keys if n not in REPLACED
                    and (no == 0 or n in REPEATED or n == b"general.alignment")]
            mine += [split_key(b"split.no", U16, "H", no), split_key(b"split.count", U16, "H", len(cuts)),
                     split_key(b"split.tensors.count", I32, "i", len(tensors))]
            path = f"{name}-{no + 1:05}-of-{len(cuts):05}.gguf"
            write_part(path, source, mine, part, alignment)
            print(path)


def main():
    parser = argparse.ArgumentParser(description="Cuts a GGUF file into several.")
    parser.add_argument("model")
    parser.add_argument("name", help="of the parts, before -00001-of-...")
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--parts", type=int, help="so many, of nearly equal size")
    size.add_argument("--max-mb", type=float, help="at most so many megabytes of tensors in each")
    parser.add_argument("--keys-first", action="store_true", help="the first part has no tensors")
    a = parser.parse_args()
    if a.parts is not None and a.parts < 2 + a.keys_first:
        parser.error("at least two parts" + (" beside the keys" if a.keys_first else ""))
    split(a.model, a.name, a.parts or 0, int(a.max_mb * 1e6) if a.max_mb else 0, a.keys_first)


main()
