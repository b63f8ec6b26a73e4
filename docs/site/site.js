/* site.js - light or dark, the list of pages on a narrow screen, and the search.
 *
 * The search reads search-index.js, which has every section of every page as
 * [page, its label, anchor, heading, text], and is loaded when the field is first used: a script and no
 * JSON, so that it works from a folder (file://), too. All words of the query must be in a section;
 * one whose heading has them comes first. */
"use strict";

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");

function remembered() {
  try { return localStorage.getItem("theme"); } catch { return null; } // a browser may keep nothing
}

function paint() {
  root.dataset.theme = remembered() || (dark.matches ? "dark" : "light");
  const button = document.getElementById("theme");
  if (button) button.textContent = root.dataset.theme === "dark" ? "Light" : "Dark";
}

paint(); // before anything is drawn
dark.addEventListener("change", paint);

const MOST = 12;
let sections = null;

function loadIndex() {
  if (sections) return Promise.resolve();
  return new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = "search-index.js";
    script.onload = () => {
      sections = window.searchIndex.map(([page, label, anchor, heading, text]) =>
        ({ page, label, anchor, heading, text, low: text.toLowerCase(), lowHeading: heading.toLowerCase() }));
      done();
    };
    script.onerror = failed;
    document.head.append(script);
  });
}

function count(text, word) {
  let found = 0;
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) found++;
  return found;
}

/* 0: some word is not in it. */
function score(section, words) {
  let sum = 0;
  for (const word of words) {
    const inText = count(section.low, word), inHeading = count(section.lowHeading, word);
    const inLabel = count(section.label.toLowerCase(), word);
    if (!inText && !inHeading && !inLabel) return 0;
    const whole = new RegExp(`(^|[^\\w-])${word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}([^\\w-]|$)`).test(section.low);
    sum += 12 * Math.min(inHeading, 1) + 6 * Math.min(inLabel, 1) + Math.log2(1 + inText) + (whole ? 3 : 0);
  }
  return sum;
}

/* The words in <mark>, as nodes: nothing here is ever parsed as HTML. */
function marked(text, words) {
  const out = document.createDocumentFragment(), low = text.toLowerCase();
  let at = 0;
  while (at < text.length) {
    let next = -1, long = 0;
    for (const word of words) {
      const found = low.indexOf(word, at);
      if (found >= 0 && (next < 0 || found < next || (found === next && word.length > long)))
        [next, long] = [found, word.length];
    }
    if (next < 0) break;
    out.append(text.slice(at, next));
    const mark = document.createElement("mark");
    mark.textContent = text.slice(next, next + long);
    out.append(mark);
    at = next + long;
  }
  out.append(text.slice(at));
  return out;
}

/* Around the rarest of the words: the others are more likely near it than it near them. */
function excerpt(section, words) {
  const there = words.filter(word => section.low.includes(word)).sort((a, b) => count(section.low, a) - count(section.low, b));
  const first = there.length ? section.low.indexOf(there[0]) : -1;
  const from = first < 0 ? 0 : Math.max(0, section.text.lastIndexOf(" ", Math.max(0, first - 60)) + 1);
  const to = from + 190;
  return (from ? "... " : "") + section.text.slice(from, to) + (to < section.text.length ? " ..." : "");
}

function show(list, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  list.replaceChildren();
  list.hidden = !words.length;
  if (!words.length) return;
  const found = sections.map(section => ({ section, score: score(section, words) })).filter(hit => hit.score)
    .sort((a, b) => b.score - a.score).slice(0, MOST);
  for (const { section } of found) {
    const link = document.createElement("a"), title = document.createElement("b"), where = document.createElement("small");
    link.href = section.page + (section.anchor ? `#${section.anchor}` : "");
    title.append(marked(section.heading, words));
    where.textContent = section.heading === section.label ? "" : section.label;
    const words_of = document.createElement("p");
    words_of.append(marked(excerpt(section, words), words));
    link.append(title, where, words_of);
    const row = document.createElement("li");
    row.append(link);
    list.append(row);
  }
  if (!found.length) {
    const row = document.createElement("li");
    row.className = "none";
    row.textContent = "No section has all of these words.";
    list.append(row);
  }
  choose(list, 0);
}

function choose(list, at) {
  const links = [...list.querySelectorAll("a")];
  if (!links.length) return;
  const next = links[Math.max(0, Math.min(at, links.length - 1))];
  links.forEach(link => link.classList.toggle("at", link === next));
  next.scrollIntoView({ block: "nearest" });
}

function searching() {
  const field = document.getElementById("query"), list = document.getElementById("results");
  const chosen = () => [...list.querySelectorAll("a")].findIndex(link => link.classList.contains("at"));
  const look = () => loadIndex().then(() => show(list, field.value));
  field.addEventListener("focus", look);
  field.addEventListener("input", look);
  field.addEventListener("keydown", event => {
    if (event.key === "ArrowDown") choose(list, chosen() + 1);
    else if (event.key === "ArrowUp") choose(list, chosen() - 1);
    else if (event.key === "Enter") list.querySelectorAll("a")[chosen()]?.click();
    else if (event.key === "Escape") { field.blur(); list.hidden = true; }
    else return;
    event.preventDefault();
  });
  list.addEventListener("click", () => { list.hidden = true; field.blur(); });
  document.addEventListener("click", event => { if (!event.target.closest(".search")) list.hidden = true; });
  document.addEventListener("keydown", event => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, textarea")) return;
    event.preventDefault();
    field.focus();
  });
}

document.addEventListener("DOMContentLoaded", () => {
  paint();
  document.getElementById("theme").addEventListener("click", () => {
    try { localStorage.setItem("theme", root.dataset.theme === "dark" ? "light" : "dark"); } catch { /* then not */ }
    paint();
  });
  const menu = document.getElementById("menu"), pages = document.getElementById("navigation");
  menu.addEventListener("click", () => menu.setAttribute("aria-expanded", String(pages.classList.toggle("open"))));
  searching();
});
