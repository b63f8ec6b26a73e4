#!/usr/bin/env python3
"""check_layers.py ROOT - holds every #include below src/ against src/LAYERS.

A room may include its own headers, the public ones (<radish/...>), and the rooms that
its line in LAYERS names, and includes something of each of these: what is not used is no layer. The
graph must have no cycle, and every folder must be listed.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def read_layers(path):
    layers = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            room, _, allowed = line.partition(":")
            layers[room.strip()] = allowed.split()
    return layers


def find_cycle(layers):
    done, path = set(), []

    def visit(room):
        if room in path:
            return path[path.index(room):] + [room]
        if room in done:
            return None
        path.append(room)
        for below in layers.get(room, []):
            cycle = visit(below)
            if cycle:
                return cycle
        path.pop()
        done.add(room)
        return None

    for room in layers:
        cycle = visit(room)
        if cycle:
            return cycle
    return None


def main():
    src = pathlib.Path(sys.argv[1]) / "src"
    layers = read_layers(src / "LAYERS")
    wrong = []
    cycle = find_cycle(layers)
    if cycle:
        wrong.append("src/LAYERS has a cycle: " + " -> ".join(cycle))
    for room, allowed in layers.items():
        for below in allowed:
            if below not in layers:
                wrong.append(f"src/LAYERS: {room} may include {below}, which is not a room")
    seen = 0
    used = set()
    for path in sorted(src.glob("*/*.[ch]")):
        room = path.parent.name
        if room not in layers:
            wrong.append(f"{path}: room {room} has no line in src/LAYERS")
            continue
        for name in INCLUDE.findall(path.read_text()):
            seen += 1
            other = name.split("/")[0]
            used.add((room, other))
            if "/" not in name or (other != room and other not in layers[room]):
                wrong.append(f"{path}: {room} may not include {name}")
    for room, allowed in layers.items():
        wrong += (f"src/LAYERS: {room} includes nothing of {below}" for below in allowed
                  if below in layers and (room, below) not in used)
    for line in wrong:
        print(line)
    print(f"{seen} includes in {len(layers)} rooms: " + ("wrong" if wrong else "as src/LAYERS says"))
    return 1 if wrong or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
