#!/usr/bin/env python3
"""`radish replay` of files that would cost a machine's memory: a gzip bomb, a line without end, a
capacity that only a header claims. Each is one line on stderr."""
import gzip
import struct
import tempfile
from pathlib import Path

from radish_e2e import check, radish, run

LINE = b'{"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [1, 2, 3]}\n'


def refused(name, content, *options):
    with tempfile.TemporaryDirectory(prefix="radish-replay-") as tmp:
        path = Path(tmp) / name
        path.write_bytes(content)
        out, err = radish("replay", path, *options, want=1)
        check(not out and err.count("\n") == 1 and name in err, err)
        return err


def test_a_bomb():
    bomb = gzip.compress(bytes(110 << 20))
    check(len(bomb) < 200_000)
    err = refused("bomb.gz", bomb, "--capacity-blocks", 10)
    check("unpack" in err and "200 times" in err, err)
    err = refused("bomb.gz", bomb, "--capacity-blocks", 10, "--max-memory", 0.01)
    check("no memory" in err and "--max-memory: 0.01 GB" in err, err)


def test_a_line_without_end():
    err = refused("long.jsonl", LINE * 2 + b'{"hash_ids": [' + b"1," * (1 << 20),
                  "--capacity-blocks", 10)
    check("line 3 has 2097166 bytes, more than 1048576" in err, err)


def test_what_is_no_trace():
    err = refused("other.rec", b"RADREK2\n" + bytes(100))
    check("no RADREC2" in err, err)
    for digit in b"19":  # an older radish's record, and a newer one's
        err = refused("other.rec", b"RADREC%c\n" % digit + bytes(100))
        check(f"a record of format {digit - 48}, and this radish reads format 2 alone" in err, err)
    with tempfile.TemporaryDirectory(prefix="radish-replay-") as tmp:
        _, err = radish("replay", tmp, want=1)
        check(err == f"radish: {tmp}: Is a directory\n", err)


def test_a_capacity_that_is_only_claimed():
    with tempfile.TemporaryDirectory(prefix="radish-replay-") as tmp:
        path = Path(tmp) / "claims.rxtrace"
        path.write_bytes(b"RXTRACE1" + struct.pack("<QIIIIQQQQI6II", 0, 1, 1, 2**31 - 2, 50, 1, 1,
                                                   0, 1, 7, 0, 0, 0, 0, 1, 1, 0))
        _, err = radish("replay", path, "--max-memory", 0.5, want=1)
        check("--max-memory: 0.5 GB" in err and err.count("\n") == 1, err)
        out, _ = radish("replay", path, "--capacity-tokens", 100)
        check("lru" in out, out)


run(globals())
