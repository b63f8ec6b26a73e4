#!/usr/bin/env python3
"""make-docs.py [OUT] - the documentation as pages for a browser, in OUT (build/docs); `make docs`.

What docs/site/contents names, in its order and groups, becomes a page each, README.md the first; documents of docs/ that
it does not name stand behind all groups. Nothing beside Python is needed, and nothing is fetched, by this script or by
the pages: they work from a folder (file://) and from any web server. docs/site has their frame, style and script.

The documents are Markdown as GitHub reads it, of which this understands what they use (headings, paragraphs, lists,
tables, code, emphasis, links, pictures); HTML in them is text. A link to another document leads to its page, one to
another file of the repository to a copy of it, and one that leads nowhere is an error."""
import html
import json
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SITE = ROOT / "docs/site"


class Wrong(Exception):
    pass


# ---- text within a line ----

SPAN = re.compile(r"(?P<code>`+)(?P<inside>.+?)(?<!`)(?P=code)(?!`)"
                  r"|(?P<picture>!)?\[(?P<words>(?:[^\[\]`]|`[^`]*`|\[[^\]]*\])*)\]\((?P<to>[^()\s]+)\)"
                  r"|<(?P<url>https?://[^\s>]+)>"
                  r"|\*\*(?P<bold>.+?)\*\*"
                  r"|(?<![\w*])\*(?P<soft>[^\s*](?:[^*]*[^\s*])?)\*(?!\w)"
                  r"|\\(?P<escaped>[\\`*_{}\[\]()#+.!|<>-])", re.S)


def inline(text, link):
    """HTML of a text; `link` gives what the page has for a target."""
    out, at = [], 0
    for m in SPAN.finditer(text):
        out.append(html.escape(text[at:m.start()], quote=False))
        at = m.end()
        if m["code"]:
            inside = m["inside"]
            if inside[0] == inside[-1] == " " and inside.strip():
                inside = inside[1:-1]
            out.append(f"<code>{html.escape(inside, quote=False)}</code>")
        elif m["picture"]:
            out.append(f'<img src="{link(m["to"])}" alt="{html.escape(m["words"])}" loading="lazy">')
        elif m["to"]:
            to = link(m["to"])
            out.append(f'<a href="{html.escape(to)}">{inline(words_for(m["words"], m["to"], to, link), link)}</a>')
        elif m["url"]:
            out.append(f'<a href="{html.escape(m["url"])}">{html.escape(m["url"])}</a>')
        elif m["bold"]:
            out.append(f"<strong>{inline(m['bold'], link)}</strong>")
        elif m["soft"]:
            out.append(f"<em>{inline(m['soft'], link)}</em>")
        else:
            out.append(html.escape(m["escaped"]))
    out.append(html.escape(text[at:], quote=False))
    return "".join(out)


def words_for(words, target, to, link):
    """A link that is called by its file's name is called as the navigation calls that page."""
    name = target.partition("#")[0]
    if words != name and not name.endswith(f"/{words}"):
        return words
    return getattr(link, "label", lambda _: None)(to.partition("#")[0]) or words


def plain(markup):
    """The words of a piece of HTML."""
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


def anchor_of(words, taken):
    """As GitHub makes them of a heading."""
    anchor = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
    count = taken.get(anchor, 0)
    taken[anchor] = count + 1
    return f"{anchor}-{count}" if count else anchor


# ---- blocks ----

FENCE = re.compile(r"^( *)(`{3,})\s*([\w+-]*)\s*$")
HEADING = re.compile(r"^(#{1,6}) +(.*?) *#*$")
ITEM = re.compile(r"^( *)([-*]|\d+\.) +(.*)$")
RULE = re.compile(r"^\|?(?: *:?-+:? *\|)+ *:?-* *:?$")
CELL = re.compile(r"(?:\\\||`(?:\\\||[^`])*`|[^|])*")


class Document:
    """Blocks of Markdown as HTML, with what the page's frame and the search want to know of them."""

    def __init__(self, text, link):
        self.link, self.taken = link, {}
        self.sections = []  # (level, anchor, words, [texts]): of each heading, with what the search looks through
        self.html = self.blocks(text.split("\n"))

    def say(self, markup):
        if self.sections:
            self.sections[-1][3].append(plain(markup))
        return markup

    def blocks(self, lines, tight=False):
        out, at = [], 0
        while at < len(lines):
            line = lines[at]
            if not line.strip():
                at += 1
            elif FENCE.match(line):
                at = self.fence(lines, at, out)
            elif line.startswith("    "):
                at = self.indented(lines, at, out)
            elif HEADING.match(line):
                self.heading(HEADING.match(line), out)
                at += 1
            elif line.startswith("|") and at + 1 < len(lines) and RULE.match(lines[at + 1]):
                at = self.table(lines, at, out)
            elif ITEM.match(line):
                at = self.list(lines, at, out)
            elif line.startswith(">"):
                raise Wrong(f"quotes are not understood: {line}")
            else:
                at = self.paragraph(lines, at, out, tight)
        return "\n".join(out)

    def code(self, text, out):
        out.append(self.say(f"<pre><code>{html.escape(text, quote=False)}</code></pre>"))

    def fence(self, lines, at, out):
        indent, ticks, _ = FENCE.match(lines[at]).groups()
        end = at + 1
        while end < len(lines) and not re.match(rf"^ *{ticks}`*\s*$", lines[end]):
            end += 1
        if end == len(lines):
            raise Wrong(f"a block of code has no end: {lines[at + 1]}")
        self.code("\n".join(line.removeprefix(indent) for line in lines[at + 1:end]), out)
        return end + 1

    def indented(self, lines, at, out):
        end = at
        while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
            end += 1
        self.code("\n".join(line[4:] for line in lines[at:end]).rstrip("\n "), out)
        return end

    def heading(self, m, out):
        level, markup = len(m[1]), inline(m[2], self.link)
        words = plain(markup)
        anchor = anchor_of(words, self.taken)
        self.sections.append((level, anchor, words, []))
        mark = f' <a class="mark" href="#{anchor}" aria-label="link to this section">#</a>' if level > 1 else ""
        out.append(f'<h{level} id="{anchor}">{markup}{mark}</h{level}>')

    def cells(self, line):
        row = line.strip().removeprefix("|")
        row = row[:-1] if row.endswith("|") and not row.endswith("\\|") else row
        cells, at = [], 0
        while at <= len(row):
            m = CELL.match(row, at)
            cells.append(inline(m[0].strip().replace("\\|", "|"), self.link))
            at = m.end() + 1
        return cells

    def table(self, lines, at, out):
        sides = [f' class="{"center" if c.startswith(":") else "right"}"' if c.endswith(":") else ""
                 for c in (cell.strip() for cell in lines[at + 1].strip().strip("|").split("|"))]
        head = self.cells(lines[at])
        rows, end = [], at + 2
        while end < len(lines) and lines[end].startswith("|"):
            rows.append(self.cells(lines[end]))
            end += 1
        for row in rows + [head]:
            if len(row) != len(sides):
                raise Wrong(f"a row has {len(row)} cells, its table {len(sides)}: {lines[at]} ... {row}")
        markup = "".join(f"<th{side}>{self.say(cell)}</th>" for side, cell in zip(sides, head))
        out.append('<div class="table"><table>' + (f"<thead><tr>{markup}</tr></thead>" if any(head) else "") + "<tbody>")
        for row in rows:
            out.append("<tr>" + "".join(f"<td{side}>{self.say(cell)}</td>" for side, cell in zip(sides, row)) + "</tr>")
        out.append("</tbody></table></div>")
        return end

    def list(self, lines, at, out):
        indent, mark, _ = ITEM.match(lines[at]).groups()
        kind = "ol" if mark[0].isdigit() else "ul"
        out.append(f"<{kind}>" if mark != "0." else f'<{kind} start="0">')
        while at < len(lines):
            m = ITEM.match(lines[at])
            if not m or m[1] != indent or (m[2][0].isdigit() != (kind == "ol")):
                break
            inside, at = [m[3]], at + 1
            deep = len(indent) + 2
            while at < len(lines):
                line = lines[at]
                if not line.strip():
                    more = next((x for x in lines[at:] if x.strip()), "")
                    if not more.startswith(" " * deep):
                        break
                elif not line.startswith(" " * deep) and (ITEM.match(line) or HEADING.match(line) or line[0] == "|"):
                    break
                inside.append(line[deep:] if line.startswith(" " * deep) else line.lstrip())
                at += 1
            out.append(f"<li>{self.blocks(inside, tight=True)}</li>")
            while at < len(lines) and not lines[at].strip() and at + 1 < len(lines) and ITEM.match(lines[at + 1] or ""):
                at += 1
        out.append(f"</{kind}>")
        return at

    def paragraph(self, lines, at, out, tight):
        end = at
        while end < len(lines) and lines[end].strip() and not FENCE.match(lines[end]) and (
                end == at or not (HEADING.match(lines[end]) or ITEM.match(lines[end]) or lines[end].startswith("|"))):
            end += 1
        text = "\n".join(line.strip() for line in lines[at:end])
        markup = self.say(inline(text, self.link))
        alone = re.fullmatch(r'<img [^>]*alt="([^"]*)"[^>]*>', markup)
        if alone:
            out.append(f"<figure>{markup}<figcaption>{alone[1]}</figcaption></figure>")
        else:
            out.append(markup if tight and at == 0 else f"<p>{markup}</p>")
        return end


# ---- the site ----

def contents():
    """[(group, [(path of the document, what the navigation calls it)])]"""
    groups = []
    for line in (SITE / "contents").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            groups.append((line.strip(), []))
            continue
        path, _, label = line.strip().partition(" ")
        groups[-1][1].append((ROOT / path, label.strip()))
    return groups


def heading(path):
    """What a document calls itself."""
    first = HEADING.match((path.read_text() + "\n").split("\n")[0])
    if not first or first[1] != "#":
        raise Wrong(f"{path.name} does not begin with its heading, # and words")
    return plain(inline(first[2], lambda to: to))


def page_of(path):
    """Beside README the root's documents may have the names of some in docs."""
    if path.name == "README.md":
        return "index.html"
    return f"{path.stem.lower()}.html" if path.parent.name == "docs" else f"about-{path.stem.lower()}.html"


class Link:
    """What a document asks of its site."""

    def __init__(self, site):
        self.site = site

    def __call__(self, to):
        return self.site.link(to)

    def label(self, page):
        return next((label for path, label in self.site.pages.items() if page_of(path) == page), None)


class Site:
    def __init__(self, out):
        self.out, self.groups = out, contents()
        named = {path for _, entries in self.groups for path, _ in entries}
        more = sorted({*(ROOT / "docs").glob("*.md")} - named)
        if more:
            self.groups.append(("More", [(path, heading(path)) for path in more]))
        self.pages = {path: label for _, entries in self.groups for path, label in entries}
        self.documents = {}
        for path in self.pages:
            self.document = path
            try:
                self.documents[path] = Document(path.read_text(), Link(self))
            except Wrong as wrong:
                raise Wrong(f"{path.relative_to(ROOT)}: {wrong}") from wrong

    def link(self, to):
        """Where a target of the document that is read leads; files that no page is made of are copied."""
        if re.match(r"https?://|mailto:", to) or to.startswith("#"):
            return to
        name, _, anchor = to.partition("#")
        path = (self.document.parent / name).resolve()
        if not path.is_relative_to(ROOT) or not path.is_file():
            raise Wrong(f"{self.document.relative_to(ROOT)} links to {to}, which is not there")
        if path in self.pages:
            return page_of(path) + (f"#{anchor}" if anchor else "")
        inside = path.relative_to(ROOT)
        if path.suffix in (".png", ".svg"):
            inside = inside.relative_to("docs")
        else:
            inside = pathlib.Path("source", f"{inside}.txt")
        copy = self.out / inside
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        return str(inside)

    def navigation(self, here):
        out = []
        for group, entries in self.groups:
            rows = "".join(f'<li><a href="{page_of(path)}"{" aria-current=page" if path == here else ""}>'
                           f"{html.escape(label)}</a></li>" for path, label in entries)
            out.append(f"<section><h2>{html.escape(group)}</h2><ul>{rows}</ul></section>")
        return "\n".join(out)

    def on_this_page(self, document):
        rows = [f'<li><a href="#{anchor}">{html.escape(words)}</a></li>'
                for level, anchor, words, _ in document.sections if level == 2]
        return f"<h2>On this page</h2><ul>{''.join(rows)}</ul>" if len(rows) > 1 else ""

    def neighbours(self, here):
        order = list(self.pages)
        at = order.index(here)
        out = []
        for step, name, arrow in ((-1, "previous", "← {}"), (1, "next", "{} →")):
            if 0 <= at + step < len(order):
                path = order[at + step]
                out.append(f'<a class="{name}" href="{page_of(path)}">'
                           f"{arrow.format(html.escape(self.pages[path]))}</a>")
        return "".join(out)

    def search_index(self):
        rows = []
        for path, document in self.documents.items():
            for level, anchor, words, texts in document.sections:
                rows.append([page_of(path), self.pages[path], "" if level == 1 else anchor, words,
                             re.sub(r"\s+", " ", " ".join(texts))])
        return rows

    def write(self):
        frame = (SITE / "page.html").read_text()
        for path, document in self.documents.items():
            title = heading(path)
            filled = {"TITLE": html.escape(title if path.name == "README.md" else f"{title} - radish"),
                      "NAVIGATION": self.navigation(path), "CONTENT": document.html,
                      "TOC": self.on_this_page(document), "NEIGHBOURS": self.neighbours(path)}
            (self.out / page_of(path)).write_text(re.sub(r"@([A-Z]+)@", lambda m: filled.get(m[1], m[0]), frame))
        for name in ("style.css", "site.js"):
            shutil.copyfile(SITE / name, self.out / name)
        index = json.dumps(self.search_index(), ensure_ascii=False, separators=(",", ":"))
        (self.out / "search-index.js").write_text(f"window.searchIndex = {index};\n")


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/docs")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    try:
        site = Site(out)
        site.write()
    except Wrong as wrong:
        sys.exit(f"make-docs: {wrong}")
    print(f"{len(site.pages)} pages are in {out}: open {out / 'index.html'}")


if __name__ == "__main__":
    main()
