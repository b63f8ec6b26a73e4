#!/usr/bin/env python3
"""terminal-picture.py OUT.svg COLUMNS ROWS SCRIPT COMMAND... - a picture of what a program shows in a terminal.

The command runs on a terminal of that size; SCRIPT says what is typed, in steps with ; between them: `wait WORDS`
until these words were shown, `type TEXT` (\\n is Enter), `sleep SECONDS`. What the screen shows then is
drawn as text in an SVG, light and dark by the viewer's scheme. docs/chat.svg and docs/top.svg are made so:

    build/release/radish serve models/radish-tiny.gguf, asked a few times, and
    tools/terminal-picture.py docs/top.svg 100 30 'sleep 8' build/release/radish top

Of a terminal's escapes it knows what radish writes: positions, erasing, bold, dim, colours."""
import codecs
import fcntl
import html
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

CSI = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b.")
COLOURS = {31: "red", 32: "green"}
STYLE = """
text { font: 14px ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace; white-space: pre; fill: #1d1a1c }
.back { fill: #fbfaf9; stroke: #e6e3e0 } .bold { font-weight: 700 } .dim { fill: #7d757e } .red { fill: #c92a2a } .green { fill: #2b8a3e }
@media (prefers-color-scheme: dark) {
  text { fill: #e9e5eb } .back { fill: #1b191d; stroke: #2e2a31 } .dim { fill: #8d8692 } .red { fill: #ff8787 } .green { fill: #69c779 }
}
"""
WIDE, HIGH, MARGIN = 8.43, 19, 14


class Screen:
    def __init__(self, columns, rows):
        self.columns, self.rows, self.style = columns, rows, ()
        self.clear()

    def clear(self):
        self.cells = [[(" ", ())] * self.columns for _ in range(self.rows)]
        self.x = self.y = 0

    def put(self, c):
        if c == "\r":
            self.x = 0
        elif c == "\n":
            self.y += 1
            if self.y == self.rows:
                self.cells = self.cells[1:] + [[(" ", ())] * self.columns]
                self.y -= 1
        elif c == "\b":
            self.x = max(0, self.x - 1)
        elif c >= " ":
            if self.x == self.columns:
                self.x = 0
                self.put("\n")
            self.cells[self.y][self.x] = (c, self.style)
            self.x += 1

    def escape(self, numbers, letter):
        values = [int(n) for n in numbers.split(";") if n.isdigit()]
        n = values[0] if values else 0
        if letter == "H":
            self.y, self.x = (values + [1, 1])[:2] if len(values) == 2 else (1, 1)
            self.y, self.x = min(self.y, self.rows) - 1, min(self.x, self.columns) - 1
        elif letter == "K":
            for x in range(self.x if n != 2 else 0, self.columns):
                self.cells[self.y][x] = (" ", ())
        elif letter == "J":
            if n == 2 or (self.x, self.y) == (0, 0):
                y, x = self.y, self.x
                self.clear()
                self.y, self.x = y, x
            else:
                self.escape("", "K")
                for y in range(self.y + 1, self.rows):
                    self.cells[y] = [(" ", ())] * self.columns
        elif letter in "ABCD":
            by = max(n, 1)
            self.y = min(self.rows - 1, max(0, self.y + {"A": -by, "B": by}.get(letter, 0)))
            self.x = min(self.columns - 1, max(0, self.x + {"C": by, "D": -by}.get(letter, 0)))
        elif letter == "m":
            for value in values or [0]:
                if value == 0:
                    self.style = ()
                elif value in (1, 2):
                    self.style += ("bold" if value == 1 else "dim",)
                elif value in COLOURS:
                    self.style += (COLOURS[value],)

    def show(self, text):
        at = 0
        while at < len(text):
            m = CSI.match(text, at)
            if m and m[2] and not m[1].startswith("?"):
                self.escape(m[1], m[2])
            if m:
                at = m.end()
            else:
                self.put(text[at])
                at += 1

    def text(self):
        return "\n".join("".join(c for c, _ in row) for row in self.cells)

    def svg(self):
        rows = self.cells
        while rows and not "".join(c for c, _ in rows[-1]).strip():
            rows = rows[:-1]
        width, height = self.columns * WIDE + 2 * MARGIN, len(rows) * HIGH + 2 * MARGIN
        out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
               f'height="{height}">', f"<style>{STYLE}</style>",
               f'<rect class="back" x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1}" rx="10"/>']
        for y, row in enumerate(rows):
            at = 0
            while at < len(row):
                end = at
                while end < len(row) and row[end][1] == row[at][1]:
                    end += 1
                words = "".join(c for c, _ in row[at:end])
                if words.strip():
                    inside = words.rstrip()
                    kind = f' class="{" ".join(row[at][1])}"' if row[at][1] else ""
                    out.append(f'<text x="{MARGIN + at * WIDE:.1f}" y="{MARGIN + y * HIGH + 14}" xml:space="preserve" '
                               f'textLength="{len(inside) * WIDE:.1f}"{kind}>{html.escape(inside)}</text>')
                at = end
        return "\n".join(out) + "\n</svg>\n"


def main():
    out, columns, rows, script, *command = sys.argv[1:]
    screen = Screen(int(columns), int(rows))
    pid, fd = pty.fork()
    if not pid:
        os.environ.update(TERM="xterm", LC_ALL="C.UTF-8", HOME="/dev/null")
        os.execvp(command[0], command)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", screen.rows, screen.columns, 0, 0))
    os.kill(pid, signal.SIGWINCH)
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")  # a read may end within a character

    def read(until, seconds=60):
        end, seen = time.monotonic() + seconds, ""
        while time.monotonic() < end and not (until and until in seen):
            if not select.select([fd], [], [], min(0.1, max(0, end - time.monotonic())))[0]:
                continue
            try:
                text = decoder.decode(os.read(fd, 65536))
            except OSError:
                return
            seen += text
            screen.show(text)
        if until and until not in seen:
            sys.exit(f"'{until}' did not come:\n{screen.text()}")

    for step in script.split(";"):
        name, _, rest = step.strip().partition(" ")
        if name == "wait":
            read(rest)
        elif name == "sleep":
            read(None, float(rest))
        elif name == "type":
            os.write(fd, rest.encode().decode("unicode_escape").encode("latin-1"))  # UTF-8 stays what it is
        else:
            sys.exit(f"what is '{step}'?")
    picture = screen.svg()
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    os.close(fd)
    with open(out, "w") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
