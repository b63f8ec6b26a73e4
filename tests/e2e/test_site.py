#!/usr/bin/env python3
"""The pages of `make docs` in a browser, from a folder: the search finds and leads, light and dark hold from page to
page, a narrow screen gets the list of pages by a button, and nothing is fetched. Links and anchors are tests/check_site.py's."""
import pathlib
import subprocess
import sys
import tempfile

import browser
from radish_e2e import ROOT, check, long_run, run, skip


@long_run
def test_a_reader_searches_and_reads():
    if not browser.find():
        skip("there is no Chromium")
    with tempfile.TemporaryDirectory(prefix="radish-site-") as tmp, browser.Browser(1300, 900) as b:
        subprocess.run([sys.executable, ROOT / "tools/make-docs.py", tmp], check=True, stdout=subprocess.DEVNULL)
        b.open((pathlib.Path(tmp) / "start.html").as_uri())
        check(b.run("document.querySelector('nav [aria-current]').textContent") == "Start")
        check(b.run("[...document.images].every(i => i.getBoundingClientRect().width > 100)"))
        # The search: by the key /, all words, marked; headings first; the arrows choose and Enter leads there.
        b.key("/", 191)
        b.type("#query", "pinned tokens")
        b.wait("document.querySelectorAll('#results a').length > 2")
        check(b.run("[...document.querySelectorAll('#results li')].every(l => l.querySelector('mark'))"))
        check(b.run("[...document.querySelectorAll('#results a')].findIndex(a => a.className === 'at')") == 0)
        b.key("ArrowDown", 40)
        second = b.run("document.querySelectorAll('#results a.at')[0].getAttribute('href')")
        check(second == b.run("document.querySelectorAll('#results a')[1].getAttribute('href')"))
        b.key("Enter", 13)
        b.wait(f"location.href.endsWith({second!r})")
        b.wait("document.readyState === 'complete'")
        b.type("#query", "<img src=x>")  # is text
        b.wait("!document.querySelector('#results').hidden")
        check(b.run("document.querySelectorAll('#results img').length") == 0)
        b.type("#query", " qqqzzz")
        b.wait("/No section has all/.test(document.querySelector('#results').textContent)")
        b.key("Escape", 27)
        check(b.run("document.querySelector('#results').hidden"))
        # Light and dark: the system's until somebody chooses, and then that, on other pages too.
        dark = "document.documentElement.dataset.theme === 'dark'"
        check(not b.run(dark))
        b.click("#theme")
        check(b.run(dark))
        b.open((pathlib.Path(tmp) / "benchmarks.html").as_uri())
        check(b.run(dark))
        # Nothing is wider than a telephone, but what scrolls by itself.
        b.resize(360, 740)
        for name in ("index", "benchmarks", "fields", "faq"):
            b.open((pathlib.Path(tmp) / f"{name}.html").as_uri())
            check(b.run("document.documentElement.scrollWidth <= 360"), name, b.run("document.documentElement.scrollWidth"))
        shown = "getComputedStyle(document.querySelector('#navigation')).display !== 'none'"
        check(not b.run(shown))
        b.click("#menu")
        check(b.run(shown) and b.run("document.querySelector('#menu').getAttribute('aria-expanded')") == "true")
        asked = {e["request"]["url"].split(":")[0] for e in b.seen("Network.requestWillBeSent")}
        check(asked <= {"file", "data", "about"}, asked)
        check(not b.seen("Log.entryAdded") and not b.seen("Runtime.exceptionThrown"), b.seen("Log.entryAdded"))


run(globals())
