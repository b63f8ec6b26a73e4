#!/usr/bin/env python3
"""test_store.py - `radish inspect store` lists, verifies and prunes what a store holds."""
import json
import pathlib
import tempfile
import subprocess

from radish_e2e import RADISH, check, radish, run

FILL = pathlib.Path(RADISH).parent / "bench/bench_storage"
RECORD, STRIDE = 16384, 16384


def filled(parent, pages=20):
    store = pathlib.Path(parent) / "store"
    subprocess.run([FILL, "--fill", store, str(pages)], check=True)
    return store


def inspect(store, *args, want=0):
    return json.loads(radish("inspect", "store", store, "--json", *args, want=want)[0])


def test_it_lists():
    with tempfile.TemporaryDirectory(prefix="radish-e2e-") as tmp:
        store = filled(tmp)
        for args in ((), ("--verify",)):
            said = inspect(store, *args)
            check(said["pages"] == 20 and said["bytes"] == 20 * STRIDE and said["bad"] == 0, said)
            check(len(said["models"]) == 1, said)
            model = said["models"][0]
            check(model["tokens"] == 320 and model["record_bytes"] == RECORD, model)
            check(0 <= model["seconds_since_last_use"] <= model["seconds_since_first_use"] < 600)
        out, _ = radish("inspect", "store", store)
        check("20 pages" in out and "0 bad" in out and "320 tokens" in out, out)


def test_it_verifies_and_prunes_what_is_bad():
    with tempfile.TemporaryDirectory(prefix="radish-e2e-") as tmp:
        store = filled(tmp)
        with open(store / f"pages-{RECORD}.data", "r+b") as f:
            f.seek(3 * STRIDE + 1000)
            f.write(b"changed")
            f.seek(7 * STRIDE)
            f.write(b"no header any more")
        check(inspect(store, want=1)["bad"] == 1)  # the header's is seen, the other is not
        said = inspect(store, "--verify", want=1)
        check(said["bad"] == 2 and said["pages"] == 20, said)
        said = inspect(store, "--prune-bad")
        check(said["pruned"] == 2 and said["bad"] == 0 and said["pages"] == 18, said)
        check(said["quarantined"] == 2 and len(list((store / "quarantine").iterdir())) == 2)
        check(inspect(store, "--verify")["pages"] == 18)


def test_it_prunes_what_was_used_longest_ago():
    with tempfile.TemporaryDirectory(prefix="radish-e2e-") as tmp:
        store = filled(tmp)
        said = inspect(store, "--prune", 5 * STRIDE)
        check(said["pruned"] == 15 and said["pages"] == 5, said)
        check(inspect(store, "--verify")["pages"] == 5)
        check(inspect(store, "--prune", 0)["pages"] == 0)


def test_a_lost_index_is_made_again():
    with tempfile.TemporaryDirectory(prefix="radish-e2e-") as tmp:
        store = filled(tmp)
        (store / "index").unlink()
        check(inspect(store, "--verify")["pages"] == 20)
        (store / "index").write_bytes(b"garbage" * 1000)
        check(inspect(store, "--verify")["pages"] == 20)


def test_it_says_what_is_no_store():
    with tempfile.TemporaryDirectory(prefix="radish-e2e-") as tmp:
        for path in (tmp, tmp + "/none"):
            _, err = radish("inspect", "store", path, want=1)
            check(path in err and err.count("\n") == 1, err)
        check(not any(pathlib.Path(tmp).iterdir()), "looking made something")
    for args in ([], ["stores"], ["store"], ["store", "a", "b"], ["store", "x", "--prune", "-1"]):
        radish("inspect", *args, want=2)
    check("inspect store DIR" in radish("inspect", "--help")[0])


run(globals())
