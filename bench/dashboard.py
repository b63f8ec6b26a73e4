#!/usr/bin/python3
"""dashboard.py MODEL [--nodes N] - the page at / over a tree of N nodes (10,000): what the server answers, and
how long a frame takes.

Fills a server with prompts that share beginnings, then asks for /inspect/tree whole and as a difference,
and, where there is a Chromium, moves the pointer over the page's tree and zooms in and out: a row is the
median, 95th percentile and worst. `draw` is the page's own work for a frame, `between frames` what
a person sees; without a GPU the browser rasters on the CPU. The program is $RADISH. Aim: a draw
below 8 ms, so that 60 frames a second are left room. Exits with 1 when the tree is not what it should be."""
import argparse
import http.client
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import browser  # noqa: E402
from radish_e2e import Server  # noqa: E402

MOVE = """new Promise((done) => {
  const tree = document.querySelector("#tree"), box = tree.getBoundingClientRect(), gaps = [];
  let i = 0, last = 0;
  radishFrames.length = 0;
  const step = (now) => {
    if (last) gaps.push(now - last);
    last = now;
    const x = box.width * (0.1 + 0.5 * (i * 37 %% 101) / 101), y = box.height * (i * 53 %% 97) / 97;
    const at = { clientX: box.x + x, clientY: box.y + y, bubbles: true, pointerType: "mouse" };
    tree.dispatchEvent(new PointerEvent("pointermove", at));
    if (i %% 40 === 20) tree.dispatchEvent(new MouseEvent("dblclick", at));
    if (++i < %d) requestAnimationFrame(step); else done([radishFrames.slice(), gaps]);
  };
  requestAnimationFrame(step);
})"""


def row(name, values, unit="ms"):
    values = sorted(values)
    print(f"{name:<34} {values[len(values) // 2]:>9.2f} {values[int(len(values) * .95)]:>9.2f} "
          f"{values[-1]:>9.2f} {unit}", flush=True)


def fill(server, nodes):
    """Prompts in threes: two that part behind a shared middle, and that behind one of 50 beginnings."""
    asked = 0
    while server.get("/inspect/tree?limit=1")["nodes_total"] < nodes:
        prompts = []
        for _ in range(50):
            front = [3 + asked % 50] + list(range(10, 22))
            middle = [100 + asked // 50 % 200, 101 + asked // 10000, *range(30, 42)]
            prompts += [front + middle + [400 + k, asked % 300, 5, 6, 7, 8] for k in (1, 2)]
            asked += 1
        server.ask("/v1/completions", {"prompt": prompts, "max_tokens": 1, "temperature": 0})


def times(server, path, count):
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    taken, size = [], 0
    for _ in range(count):
        begin = time.perf_counter()
        connection.request("GET", path)
        size = len(connection.getresponse().read())
        taken.append(1000 * (time.perf_counter() - begin))
    connection.close()
    return taken, size


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--nodes", type=int, default=10000)
    parser.add_argument("--frames", type=int, default=300)
    args = parser.parse_args()
    with Server(args.model, "--max-total-tokens", 40 * args.nodes, "--dashboard-text", huge_pages=True) as s:
        fill(s, args.nodes)
        told = s.get("/inspect/tree")
        print(f"{told['nodes_total']} nodes, {told['tokens_total']} tokens\n{'':<34} {'median':>9} {'95%':>9} {'worst':>9}")
        taken, size = times(s, "/inspect/tree", 20)
        row(f"/inspect/tree, {size >> 10} KiB", taken)
        taken, size = times(s, f"/inspect/tree?since={told['version']}", 50)
        row(f"/inspect/tree?since=, {size} bytes", taken)
        if not browser.find():
            print("no frames: there is no Chromium")
        else:
            with browser.Browser(1280, 900) as b:
                b.open(f"http://127.0.0.1:{s.port}/")
                b.wait("radishTree.still()")
                draws, gaps = b.run(MOVE % args.frames)
                row("draw", draws)
                row("between frames", gaps)
        return 0 if told["nodes_total"] >= args.nodes else 1


if __name__ == "__main__":
    sys.exit(main())
