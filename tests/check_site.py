#!/usr/bin/env python3
"""check_site.py ROOT - tools/make-docs.py makes pages that hold together.

 - Markdown becomes the HTML that it should, in the cases that the documents have, and what is not understood is refused.
 - Of the pages that it makes of the repository each link, picture, style and script leads to a file that was made, each
   anchor to an element of that page, and nothing is loaded from anywhere else.
 - Each heading is in the search's index once, and each row of it leads somewhere.
"""
import html.parser
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

CASES = [
    ("a `b<c` *d* **e `f`** \\* g_h_i 2 * 3 * 4", "<p>a <code>b&lt;c</code> <em>d</em> <strong>e <code>f</code></strong> * "
     "g_h_i 2 * 3 * 4</p>"),
    ("``a ` b`` <b>", "<p><code>a ` b</code> &lt;b&gt;</p>"),
    ("[a `b`](x.md#y) ![c](d.png) e", '<p><a href="x.md#y">a <code>b</code></a> <img src="d.png" alt="c" loading="lazy"> e</p>'),
    ("![c](d.png)", '<figure><img src="d.png" alt="c" loading="lazy"><figcaption>c</figcaption></figure>'),
    ("a\nb\n\nc", "<p>a\nb</p>\n<p>c</p>"),
    ("    a <b>\n\n      c\n\nd", "<pre><code>a &lt;b&gt;\n\n  c</code></pre>\n<p>d</p>"),
    ("```sh\n# a\n\n- b\n```\nc", "<pre><code># a\n\n- b</code></pre>\n<p>c</p>"),
    ("- a\n  b\n- c\n  - d\n\ne", "<ul>\n<li>a\nb</li>\n<li>c\n<ul>\n<li>d</li>\n</ul></li>\n</ul>\n<p>e</p>"),
    ("1. a\n2. b", "<ol>\n<li>a</li>\n<li>b</li>\n</ol>"),
    ("| a | b |\n|---|--:|\n| `x\\|y` | \\| |", '<div class="table"><table><thead><tr><th>a</th><th class="right">b</th></tr>'
     '</thead><tbody>\n<tr><td><code>x|y</code></td><td class="right">|</td></tr>\n</tbody></table></div>'),
    ("| | |\n|---|---|\n| a | b |", '<div class="table"><table><tbody>\n<tr><td>a</td><td>b</td></tr>\n</tbody></table></div>'),
    ("## A `b`, c-d!\n## A b, c-d", '<h2 id="a-b-c-d">A <code>b</code>, c-d! <a class="mark" href="#a-b-c-d" '
     'aria-label="link to this section">#</a></h2>\n<h2 id="a-b-c-d-1">A b, c-d <a class="mark" href="#a-b-c-d-1" '
     'aria-label="link to this section">#</a></h2>')]
REFUSED = ["> a", "```\na", "| a | b |\n|---|---|\n| c |"]


def load(path):
    spec = importlib.util.spec_from_file_location("make_docs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Page(html.parser.HTMLParser):
    """What a page leads to, what it loads, what can be led to; tags must nest."""

    VOID = {"meta", "link", "img", "input", "source", "br"}

    def __init__(self, text):
        super().__init__()
        self.leads, self.loads, self.ids, self.open, self.wrong = [], [], [], [], []
        self.feed(text)
        if self.open:
            self.wrong.append(f"not closed: {self.open}")

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if "style" in attrs or any(name.startswith("on") for name in attrs):
            self.wrong.append(f"<{tag}> has style or script of its own")
        if tag == "a":
            self.leads.append(attrs["href"])
        elif "src" in attrs or tag == "link":
            self.loads.append(attrs.get("src") or attrs["href"])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes nothing")


def check_markdown(make_docs, wrong):
    for text, want in CASES:
        got = make_docs.Document(text, lambda to: to).html
        if got != want:
            wrong.append(f"{text!r} becomes\n    {got!r}, not\n    {want!r}")
    for text in REFUSED:
        try:
            make_docs.Document(text, lambda to: to)
            wrong.append(f"{text!r} was not refused")
        except make_docs.Wrong:
            pass


def check_headings(make_docs, folder, wrong):
    """A document that docs/site/contents does not name is called as it calls itself."""
    path = folder / "new.md"
    for text, want in (("# A `new` one\n\nwords", "A new one"), ("words", None), ("## Two\n", None), ("", None)):
        path.write_text(text)
        try:
            got = make_docs.heading(path)
        except make_docs.Wrong:
            got = None
        if got != want:
            wrong.append(f"{text!r} is called {got!r}, not {want!r}")


def check_pages(out, wrong):
    pages = {path.name: Page(path.read_text()) for path in out.glob("*.html")}
    links = 0
    for name, page in pages.items():
        wrong += [f"{name}: {what}" for what in page.wrong]
        wrong += [f"{name}: the id {i} is there twice" for i in {i for i in page.ids if page.ids.count(i) > 1}]
        for to in page.leads + page.loads:
            links += 1
            if to.startswith(("https://", "http://")) and to in page.leads or to == "data:,":
                continue
            file, _, anchor = to.partition("#")
            if ":" in to or not (out / (file or name)).is_file():
                wrong.append(f"{name}: {to} leads nowhere")
            elif anchor and anchor not in pages[file or name].ids:
                wrong.append(f"{name}: {to}: there is no such place")
    for path in (out / "style.css", out / "site.js"):
        if "http" in path.read_text().replace("http://www.w3.org/", "") or "url(" in path.read_text():
            wrong.append(f"{path.name} loads something")
    if len(pages) < 15 or links < 500:
        wrong.append(f"only {len(pages)} pages with {links} links")
    return pages


def check_search(out, pages, wrong):
    text = (out / "search-index.js").read_text()
    rows = json.loads(text[text.index("["):text.rindex(";")])
    for page, label, anchor, heading, words in rows:
        if page not in pages or anchor and anchor not in pages[page].ids or not label or not heading:
            wrong.append(f"search-index.js: {page}#{anchor} {heading} leads nowhere")
    found = {(page, anchor) for page, _, anchor, _, _ in rows}
    if len(found) != len(rows) or len(rows) < 150 or sum(len(row[4]) for row in rows) < 100_000:
        wrong.append(f"search-index.js has {len(rows)} rows, {len(found)} of them different")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    wrong = []
    make_docs = load(root / "tools/make-docs.py")
    check_markdown(make_docs, wrong)
    with tempfile.TemporaryDirectory(prefix="radish-site-") as tmp:
        check_headings(make_docs, pathlib.Path(tmp), wrong)
        out = pathlib.Path(tmp) / "docs"
        done = subprocess.run([sys.executable, root / "tools/make-docs.py", out], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        pages = check_pages(out, wrong)
        check_search(out, pages, wrong)
    for line in wrong:
        print(line)
    print(f"{len(pages)} pages, {len(CASES) + len(REFUSED)} cases: " + (f"{len(wrong)} things are wrong" if wrong else "right"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
