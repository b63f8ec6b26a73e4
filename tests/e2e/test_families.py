#!/usr/bin/env python3
"""Golden logits of tiny models of many families, where the data beside the repository has them:
each file names the command that makes its model. Without that data there is nothing to do."""
import hashlib
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

from radish_e2e import DATA, check, radish, run

GOLDENS = sorted((DATA / "families").glob("*.json")) if (DATA / "families").is_dir() else []
TOOLS = DATA.parent / "tools"
# What its author's program rounds on the way is in it: f32 sums, and a table of f16 for GELU.
TOLERANCE = {"gemma3": 2e-2, "gemma3-linear8": 2e-2}
# Refused so far, in words: layers with a recurrent state.
REFUSED = set()


def check_family(path, directory):
    golden, name = json.loads(path.read_text()), path.stem
    limit = TOLERANCE.get(name, 2e-3)
    command = shlex.split(golden["make"])
    subprocess.run([sys.executable, *command, "--out", directory], cwd=TOOLS, check=True,
                   capture_output=True)
    model = pathlib.Path(directory) / golden["gguf"]
    check(hashlib.sha256(model.read_bytes()).hexdigest() == golden["gguf_sha256"], "another file")
    ids = golden["tokens"] + golden["greedy_ids"]
    args = ["logits", "-m", model, "--ids", ",".join(map(str, ids)), "--dtype", "f32", "--json"]
    if name in REFUSED:
        check("not supported" in radish(*args, want=1)[1], name)
        return
    got, n = json.loads(radish(*args)[0])["logits"], len(golden["tokens"])
    off = max(abs(a - b) for want, at in (("mid_logits", golden["mid_position"]),
                                          ("last_logits", n - 1))
              for a, b in zip(got[at], golden[want]))
    check(off < limit, name, off)
    best = [max(range(len(line)), key=line.__getitem__) for line in got]
    if golden["argmax_margin_min"] > 2 * limit:
        check(best[:n] == golden["argmax_all"], name, "another best id")
    for step, (want, margin) in enumerate(zip(golden["greedy_ids"], golden["greedy_margins"])):
        if margin < 2 * limit:
            break
        check(best[n - 1 + step] == want, name, "greedy step", step)
    print(f"  {name}: off by {off:.1e}")


if GOLDENS and (TOOLS / "make_families.py").exists():
    def test_families_say_what_their_goldens_say():
        with tempfile.TemporaryDirectory() as directory:
            for path in GOLDENS:
                check_family(path, directory)


if __name__ == "__main__":
    run(globals())
