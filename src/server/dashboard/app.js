/* app.js - the page at /: asks /inspect/status and /inspect/tree once a second and draws them.
 *
 * The tree: x is the place in the prompt, y the share of all leaves, so a prefix that many requests
 * begin with is a tall block at the left, and what goes on from it stands to its right:
 *
 *     | system prompt        | question 1 | answer |
 *     |                      |------------|-----
 *     |                      | question 2 | answer    |
 *
 * What is less than a pixel high is drawn as one line of its whole length, so a frame costs the pixels
 * that there are, and not the nodes. All text of the server goes into textContent. */
"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const el = (tag, cls, text) => {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (text !== undefined) e.textContent = text;
  return e;
};
const fill = (to, ...children) => to.replaceChildren(...children.filter(Boolean));
const clamp = (x, a, b) => Math.min(Math.max(x, a), b);
const store = (kind, name, value) => { // a browser may have none
  try {
    if (value === undefined) return kind.getItem(name);
    if (value === null) kind.removeItem(name); else kind.setItem(name, value);
  } catch { /* then it is forgotten */ }
  return null;
};

// ---- numbers in words ----

const count = (n) => {
  if (n == null || !isFinite(n)) return "–";
  const a = Math.abs(n);
  if (a < 1000) return a < 10 && n % 1 ? n.toFixed(1) : String(Math.round(n));
  for (const [unit, size] of [["k", 1e3], ["M", 1e6], ["G", 1e9], ["T", 1e12]])
    if (a < size * 999.5) return (a < size * 99.95 ? (n / size).toFixed(1) : Math.round(n / size)) + unit;
  return n.toExponential(1);
};
const exact = (n) => n.toLocaleString("en-US");
const bytes = (n) => {
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (n < 1023.5) return (n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)) + " " + unit;
    n /= 1024;
  }
  return Math.round(n) + " PiB";
};
const time = (s) => {
  if (s == null || !isFinite(s)) return "–";
  if (s < 0.0095) return (s * 1000).toFixed(1) + " ms";
  if (s < 0.9995) return Math.round(s * 1000) + " ms";
  if (s < 9.95) return s.toFixed(1) + " s";
  if (s < 90) return Math.round(s) + " s";
  if (s < 5400) return Math.round(s / 60) + " min";
  if (s < 172800) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " d";
};
const ago = (s) => s < 1 ? "now" : time(s) + " ago";
const percent = (x) => x == null || !isFinite(x) ? "–" : (x > 0 && x < 0.1 ? (100 * x).toFixed(1) : Math.round(100 * x)) + "%";
const plural = (n, word) => count(n) + " " + word + (n === 1 ? "" : "s");

// ---- asking ----

let key = store(sessionStorage, "radish-key") || "";

class Refused extends Error {
  constructor(status, words) { super(words); this.status = status; }
}

async function ask(path, body, signal) {
  const headers = {};
  if (key) headers.Authorization = "Bearer " + key;
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, cache: "no-store", credentials: "omit",
                                     body: body && JSON.stringify(body), signal });
  if (answer.ok) return answer;
  let words = "the server answered " + answer.status;
  try { words = (await answer.json()).error.message || words; } catch { /* no JSON of ours */ }
  throw new Refused(answer.status, words);
}
const get = async (path, signal) => (await ask(path, null, signal)).json();

function say(words) { // what is wrong, or nothing
  $("banner").hidden = !words;
  $("banner").textContent = words || "";
}

let gateOpen = false;
function gate(open, words) {
  gateOpen = open;
  $("gate").hidden = !open;
  $("board").hidden = open;
  if (words) $("gatewords").textContent = words;
  if (open) setTimeout(() => $("key").focus(), 0);
}
$("keyform").addEventListener("submit", (e) => {
  e.preventDefault();
  key = $("key").value;
  store(sessionStorage, "radish-key", key);
  $("key").value = "";
  gate(false);
  poll();
});
$("forget").addEventListener("click", () => {
  key = "";
  store(sessionStorage, "radish-key", null);
  location.reload();
});

// ---- themes ----

const dark = matchMedia("(prefers-color-scheme: dark)");
let colours = {};
function paint() {
  const chosen = $("theme").value;
  const is = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
  document.documentElement.dataset.theme = is;
  document.documentElement.style.colorScheme = is;
  const css = getComputedStyle(document.documentElement);
  for (const name of ["bg", "card", "line", "text", "soft", "faint", "accent", "leaf", "blue", "amber", "violet", "bad", "sunk", "age-new", "age-old", "free"])
    colours[name] = css.getPropertyValue("--" + name).trim();
  colours.ramp = ramp(colours["age-old"], colours["age-new"], 24);
  colours.names = Array.from({ length: 12 }, (_, i) => `hsl(${(338 + i * 137.5) % 360} ${is === "dark" ? "45% 60%" : "48% 55%"})`);
  charts.forEach((c) => c.rebuild());
  drawLegend();
  redraw();
}
function rgb(hex) {
  const h = hex.replace("#", ""), f = h.length === 3 ? [...h].map((c) => c + c).join("") : h;
  return [0, 2, 4].map((i) => parseInt(f.slice(i, i + 2), 16));
}
function ramp(from, to, steps) {
  const a = rgb(from), b = rgb(to);
  return Array.from({ length: steps }, (_, i) => `rgb(${a.map((x, k) => Math.round(x + (b[k] - x) * i / (steps - 1))).join(" ")})`);
}

// ---- what was heard so far ----

const past = []; // {t, s}: answers of /inspect/status, the newest last; 30 minutes of them
const MOST = 1900;
const now = () => past.length ? past[past.length - 1].s : null;
function back(seconds, from = past.length - 1) { // the answer from so long before number `from`
  const t = past[from].t - seconds;
  let i = from;
  while (i > 0 && past[i].t > t) i--;
  return past[i];
}
const delta = (a, b, name) => b.s.counters[name] - a.s.counters[name];
const rate = (a, b, name) => b.t > a.t ? delta(a, b, name) / (b.t - a.t) : null;
function hitRate(a, b) {
  const all = delta(a, b, "prompt_tokens");
  if (!(all > 0)) return null;
  return ["device", "host", "storage"].map((tier) => delta(a, b, `cached_${tier}_tokens`) / all);
}
function quantile(a, b, kind, q) {
  const bounds = b.s.latency.bounds_s, counts = b.s.latency[kind].counts, before = a && a !== b ? a.s.latency[kind].counts : null;
  const n = counts.map((c, i) => c - (before ? before[i] : 0));
  const all = n.reduce((x, y) => x + y, 0);
  if (!(all > 0)) return null;
  let left = q * all;
  for (let i = 0; i < n.length; i++) {
    if (n[i] && left <= n[i]) {
      const low = i ? bounds[i - 1] : 0, high = i < bounds.length ? bounds[i] : low * 1.5;
      return low + (high - low) * left / n[i];
    }
    left -= n[i];
  }
  return bounds[bounds.length - 1];
}

// ---- tiles ----

function tile(name, value, unit, more, title) {
  const t = el("div", "tile"), v = el("div", "value", value);
  if (unit) v.append(el("small", "", unit));
  t.append(el("div", "name", name), v, el("div", "more", more || "\u00a0"));
  if (title) t.title = title;
  return t;
}

function drawTiles() {
  const b = past[past.length - 1], s = b.s, minute = back(60), ten = back(10), first = past[0];
  const span = minute === first ? `last ${time(Math.max(1, b.t - first.t))}` : "last minute";
  let hit = hitRate(minute, b), when = span;
  if (!hit && s.counters.prompt_tokens) { // nobody asked lately
    const all = s.counters.prompt_tokens;
    hit = ["device", "host", "storage"].map((tier) => s.counters[`cached_${tier}_tokens`] / all);
    when = "since the start";
  }
  const sum = hit && hit[0] + hit[1] + hit[2];
  const tiers = hit && s.tiers ? `host ${percent(hit[1])}, storage ${percent(hit[2])}` : when;
  const ttft = [0.5, 0.95].map((q) => quantile(minute, b, "first_token", q) ?? quantile(null, b, "first_token", q));
  const itl = [0.5, 0.95].map((q) => quantile(minute, b, "inter_token", q) ?? quantile(null, b, "inter_token", q));
  const split = (t) => t == null ? ["–", ""] : time(t).split(" ");
  const pool = s.pools.find((p) => p.component === "full" && p.tier === "device") || s.pools[0];
  const used = pool ? pool.total - pool.available : 0;
  const evicted = rate(minute, b, "evicted_tokens");
  fill($("tiles"),
    tile("Cache hit rate", hit ? percent(sum).slice(0, -1) : "–", hit ? "%" : "", s.radix_cache ? hit ? tiers : "no prompt yet" : "the cache is off", `part of the prompt tokens that was cached, ${when}`),
    tile("Tokens a second", count(rate(ten, b, "generated_tokens") ?? 0), "out", `${count(rate(ten, b, "prompt_tokens") ?? 0)} in, ${count(rate(ten, b, "computed_tokens") ?? 0)} computed`),
    tile("First token", ...split(ttft[0]), ttft[1] == null ? "no answer yet" : `95% within ${time(ttft[1])}`),
    tile("Between tokens", ...split(itl[0]), itl[1] == null ? "no answer yet" : `95% within ${time(itl[1])}`),
    tile("Requests", count(s.now.running), "running", `${s.now.waiting} waiting, ${exact(s.counters.finished)} done`),
    pool && tile("Cached", count(pool.protected + pool.evictable), "tokens", `${count((evicted || 0) * 60)} evicted a minute`, `${percent(used / pool.total)} of the pool is not free`));
}

// ---- curves ----

const charts = [], HIGH = 138;
const spanChosen = () => Number($("span").value);

function Chart(id, series, format, range) {
  const box = $(id);
  const note = el("div", "quiet-note"), keys = el("div", "keys");
  let plot = null, size = 0;
  box.before(keys);
  const tell = (at) => { // the values under the cursor, or the newest
    const d = plot.data, i = at == null ? d[0].length - 1 : at;
    fill(keys, ...series.slice().reverse().map((s, k) => {
      const w = el("span"), v = d[series.length - k] && d[series.length - k][i];
      w.append(swatch(colours[s.colour]), s.name + " ", el("b", "", v == null ? "–" : format(v)));
      return w;
    }), at == null ? null : el("span", "at", time(d[0][d[0].length - 1] - d[0][at]) + " ago"));
  };
  const data = () => {
    const end = past.length ? past[past.length - 1].t : 0, from = end - spanChosen();
    const xs = [], ys = series.map(() => []);
    const step = Math.max(1, Math.floor(spanChosen() / 360));
    for (let i = past.length - 1; i > 0; i -= step) {
      if (past[i].t < from) break;
      xs.unshift(past[i].t);
      const before = back(Math.max(step, 5), i);
      series.forEach((s, k) => ys[k].unshift(s.of(before, past[i], i)));
    }
    return [xs, ...ys];
  };
  const options = () => ({
    width: box.clientWidth || 300, height: HIGH, padding: [8, 14, 0, 0],
    cursor: { y: false, points: { size: 6 } }, legend: { show: false },
    hooks: { setCursor: [(u) => { if (plot) tell(u.cursor.left < 0 ? null : u.cursor.idx); }] },
    scales: { x: { time: true, range: () => { const end = past.length ? past[past.length - 1].t : 1; return [end - spanChosen(), end]; } },
              y: { range: (u, low, high) => range ? range(high) : [0, !high || high < 1e-9 ? 1 : high * 1.12] } },
    axes: [{ stroke: colours.soft, grid: { show: false }, ticks: { show: false }, size: 22, space: 70, font: "11px system-ui, sans-serif",
             values: (u, ticks) => { const end = u.scales.x.max; return ticks.map((t) => { const ago = Math.round(end - t); return ago < 1 ? "now" : ago < 60 ? `−${ago} s` : `−${+(ago / 60).toFixed(1)} min`; }); },
             splits: (u) => { const end = u.scales.x.max; return [0.8, 0.6, 0.4, 0.2, 0].map((p) => end - spanChosen() * p); } },
           { stroke: colours.soft, grid: { stroke: colours.line, width: 1 }, ticks: { show: false }, size: 52, space: 28, font: "11px system-ui, sans-serif",
             values: (u, ticks) => ticks.map(format) }],
    series: [{ value: (u, t) => t == null ? "" : new Date(t * 1000).toLocaleTimeString() },
      ...series.map((s) => ({ label: s.name, stroke: colours[s.colour], width: 1.75, spanGaps: false, points: { show: false },
                              fill: s.fill ? `color-mix(in srgb, ${colours[s.colour]} 14%, transparent)` : undefined,
                              value: (u, v) => v == null ? "–" : format(v) }))],
  });
  const build = () => {
    if (plot) plot.destroy();
    size = box.clientWidth;
    plot = new uPlot(options(), data(), box);
    box.append(note);
    tell(null);
  };
  this.rebuild = () => { if (plot) build(); };
  this.draw = () => {
    if (!box.clientWidth) return;
    if (!plot) build();
    if (size !== box.clientWidth) { size = box.clientWidth; plot.setSize({ width: size, height: HIGH }); }
    const d = data();
    plot.setData(d);
    if (plot.cursor.left == null || plot.cursor.left < 0) tell(null);
    note.textContent = d.slice(1).some((ys) => ys.some((y) => y != null)) ? "" : "nothing in this time";
  };
  charts.push(this);
}

function makeCharts() {
  const tier = (name, label, colour, to, fill) => ({ name: label, colour, fill,
    of: (a, b) => { const h = hitRate(a, b); return h && h.slice(0, to).reduce((x, y) => x + y, 0); } });
  const tiers = now() && now().tiers;
  new Chart("c-hit", tiers ? [tier("storage", "with storage", "amber", 3), tier("host", "with host", "blue", 2), tier("device", "device", "accent", 1, true)]
                           : [tier("device", "cached", "accent", 1, true)], (v) => percent(v), () => [0, 1]);
  const perSecond = (name, label, colour, fill) => ({ name: label, colour, fill, of: (a, b) => rate(a, b, name) });
  new Chart("c-tok", [perSecond("prompt_tokens", "prompts", "soft"), perSecond("computed_tokens", "computed", "blue"), perSecond("generated_tokens", "answers", "accent", true)], count);
  const waits = (kind, q, label, colour) => ({ name: label, colour, of: (a, b, i) => quantile(back(10, i), b, kind, q) });
  new Chart("c-ttft", [waits("first_token", 0.95, "95% within", "soft"), waits("first_token", 0.5, "half within", "accent")], time);
  new Chart("c-itl", [waits("inter_token", 0.95, "95% within", "soft"), waits("inter_token", 0.5, "half within", "accent")], time);
  new Chart("c-req", [{ name: "running", colour: "accent", fill: true, of: (a, b) => b.s.now.running }, { name: "waiting", colour: "amber", of: (a, b) => b.s.now.waiting }], count);
  new Chart("c-evict", [perSecond("evicted_tokens", "device", "accent", true), ...(tiers ? [perSecond("host_evicted_tokens", "host", "blue")] : [])], count);
}

// ---- memory, evictions, requests ----

const swatch = (colour) => { const i = el("i"); i.style.background = colour; return i; };

function drawPools(s) {
  const rows = s.pools.map((p) => {
    const parts = [["held by requests", p.held, colours.accent], ["cached, in use", p.protected, colours.violet], ["cached", p.evictable, colours.leaf], ["free", p.available, null]];
    const row = el("div", "pool"), top = el("div", "top"), meter = el("div", "meter"), legend = el("div", "parts");
    const names = { full: "K/V", window: "K/V of window layers", state: "State snapshots" };
    const unit = p.unit === "bytes" ? (n) => bytes(n) : count;
    top.append(el("span", "", `${names[p.component] || p.component} · ${p.tier}`),
               el("span", "", `${unit(p.total - p.available)} of ${unit(p.total)}${p.unit === "bytes" ? "" : " " + p.unit} · ${bytes(p.total * p.unit_bytes)}`));
    for (const [name, n, colour] of parts) {
      if (colour && n > 0) { const i = swatch(colour); i.style.width = `max(2px, ${100 * n / p.total}%)`; i.title = `${name}: ${exact(n)}`; meter.append(i); }
      if (n > 0 || name === "free") { const w = el("span"); w.append(swatch(colour || colours.free), `${name} ${unit(n)}`); legend.append(w); }
    }
    row.append(top, meter, legend);
    return row;
  });
  if (s.storage) rows.push(el("p", "fine", `${s.storage.backend}: ${s.storage.down ? "out of reach" : "up"}, ${plural(s.storage.pages, "page")}, ${exact(s.storage.hits)} of ${exact(s.storage.gets)} reads found, ${plural(s.storage.errors, "error")}`));
  rows.push(el("p", "fine", [s.now.pinned_tokens ? `${exact(s.now.pinned_tokens)} tokens pinned` : "", plural(s.now.namespaces, "namespace"), plural(s.now.sessions_open, "open session"),
    s.counters.self_check_violations ? `self-check found ${exact(s.counters.self_check_violations)} violations` : s.counters.self_checks ? `self-check clean ${time(s.now.self_check_age_s)} ago` : ""].filter(Boolean).join(" · ")));
  const b = past[past.length - 1], a = back(10), dt = b.t - a.t, work = el("dl", "work");
  const row = (name, value) => work.append(el("dt", "", name), el("dd", "", value));
  row("steps a second", count(rate(a, b, "forward_steps") ?? 0));
  if (dt > 0) row("time in the model", percent(Math.min(1, delta(a, b, "forward_s") / dt)));
  if (dt > 0) row("time in tree and scheduler", percent(Math.min(1, delta(a, b, "schedule_s") / dt)));
  const read = s.counters.kv_read_bytes, unshared = s.counters.kv_unshared_bytes;
  if (unshared) row("K/V reads saved by sharing", `${percent(1 - read / unshared)} of ${bytes(unshared)}`);
  if (s.counters.retractions) row("retractions", exact(s.counters.retractions));
  rows.push(work);
  fill($("pools"), ...rows);
}

function table(heads, rows) {
  const t = el("table"), head = t.createTHead().insertRow(), body = t.createTBody();
  heads.forEach(([name, cls]) => head.append(el("th", cls || "", name)));
  rows.forEach((cells) => { const r = body.insertRow(); cells.forEach((c, i) => { const d = r.insertCell(); d.className = heads[i][1] || ""; d.append(c ?? ""); }); });
  return t;
}

const causes = { asked: "pages were needed", room: "an insert needed room in the tree" };

function drawEvictions(s) {
  const e = s.evictions, sums = [];
  for (const tier of ["device", "host"])
    for (const cause of ["asked", "room"]) if (e.tokens[tier][cause]) sums.push(`${count(e.tokens[tier][cause])} ${tier === "host" ? "on the host " : ""}because ${causes[cause]}`);
  $("evict-sum").textContent = `${e.policy}${sums.length ? ": " + sums.join(", ") : ""}`;
  if (!e.recent.length) return fill($("evictions"), el("p", "nothing", "Nothing has been evicted. There was room for all that was asked so far."));
  fill($("evictions"), table([["when"], ["tokens", "n"], ["hits", "n"], ["not used for", "n optional"], ["where"], ["why"]], e.recent.map((r) => [
    ago(r.age_s), exact(r.tokens), exact(r.hits), plural(r.idle_operations, "operation"), r.tier + (r.whole ? "" : ", its end"), causes[r.cause] || r.cause])));
}

function words(e, prompt) { // a cache_explanation
  if (!e) return "";
  const parts = [];
  const tier = (name, t) => {
    if (!t) return;
    if (t.tokens) parts.push(`${count(t.tokens)} from ${name}`);
  };
  tier("the device", e.device); tier("the host", e.host); tier("storage", e.storage);
  const d = e.device || {};
  const ends = { complete: "", never_seen: "the rest was never seen", page_rounding: "the rest is less than a page", window: "behind it a window is gone", no_state_snapshot: "behind it there is no snapshot", other_namespace: "the rest is in another namespace", too_long_name: "its namespace's name is too long to be cached" };
  if (d.end === "evicted") parts.push(`${count(d.evicted_tokens)} more were evicted ${time(d.evicted_s_ago)} ago (${d.policy}: ${causes[d.cause] || d.cause})`);
  else if (ends[d.end]) parts.push(ends[d.end]);
  if (d.copied) parts.push(`${count(d.copied)} copied from a page that begins alike`);
  if (e.computed_from !== undefined) parts.push(`computed from ${e.computed_from} on: its logprobs were wanted`);
  if (e.host && e.host.load === "failed") parts.push("the load failed");
  return parts.join("; ") || (prompt ? "nothing of it was cached" : "");
}

function drawRequests(s) {
  $("req-sum").textContent = s.requests.length ? `${s.now.running} running, ${s.now.waiting} waiting${s.requests.length > 60 ? "; the first 60" : ""}` : "";
  if (!s.requests.length) return fill($("requests"), el("p", "nothing", "Nothing is running."));
  fill($("requests"), table([["request"], ["", ""], ["age", "n"], ["prompt", "n"], ["cached", "n"], ["out", "n"], ["why no more was cached", "why optional"]], s.requests.slice(0, 60).map((r) => {
    const name = el("span", "mono", r.name ? r.name.replace(/^([a-z]+-)?(.{8}).*$/, "$1$2") : "#" + r.id);
    name.title = r.name || "";
    let first = name;
    if (r.node) {
      first = el("button", "link"); first.type = "button"; first.append(name);
      first.addEventListener("click", () => select(r.node, true));
    }
    const left = r.state === "prefill" ? ` ${percent(r.computed_tokens / Math.max(1, r.prompt_tokens))}` : "";
    return [first, el("span", "tag " + r.state, r.state + left), time(r.age_s), exact(r.prompt_tokens), r.explanation ? exact(r.cached_tokens) : "–", exact(r.output_tokens), words(r.explanation) + (r.retractions ? `; retracted ${r.retractions}×` : "")];
  })));
}

// ---- the tree ----

const tree = { nodes: new Map(), version: 0, roots: [], told: null, chosen: 0, zoom: 0, hover: 0, found: null, seq: 0, depth: 1, leaves: 1, oldest: 60 };
const canvas = $("tree"), pen = canvas.getContext("2d");
const view = { x0: 0, x1: 1, y0: 0, y1: 1 }, goal = { x0: 0, x1: 1, y0: 0, y1: 1 };
const labels = new Map(); // "id:generation" -> text
const frames = []; // how long the last ones took, ms
window.radishFrames = frames; // for tests, as the next
window.radishTree = {
  still: () => tree.nodes.size > 0 && !tree.moving && Object.keys(goal).every((k) => view[k] === goal[k]),
  place: (is) => { // the middle of the first node that `is`, in the canvas
    const n = tree.order.find(is), box = canvas.getBoundingClientRect();
    return n && [(n.x + n.tokens / 2 - view.x0) / (view.x1 - view.x0) * box.width, (n.y + n.h / 2 - view.y0) / (view.y1 - view.y0) * box.height];
  },
};

function takeTree(told) {
  const at = Object.fromEntries(told.columns.map((name, i) => [name, i]));
  if (told.whole) {
    const gone = new Set(tree.nodes.keys());
    for (const v of told.nodes) gone.delete(v[at.id]);
    gone.forEach((id) => tree.nodes.delete(id));
  } else for (const id of told.removed) tree.nodes.delete(id);
  for (const v of told.nodes) {
    const id = v[at.id];
    let n = tree.nodes.get(id);
    if (!n || n.generation !== v[at.generation]) tree.nodes.set(id, n = { id, seq: Infinity, y: -1, h: 0, ty: 0, th: 0, kids: [], x: 0, far: 0, leaves: 1 });
    n.parent = v[at.parent]; n.ns = v[at.namespace]; n.tokens = v[at.tokens]; n.locks = v[at.locks]; n.hits = v[at.hits]; n.tiers = v[at.tiers];
    n.sessions = v[at.sessions]; n.flags = v[at.flags]; n.used = v[at.used_ms]; n.more = v[at.hidden_nodes]; n.moreTokens = v[at.hidden_tokens]; n.generation = v[at.generation];
  }
  tree.version = told.version;
  tree.told = told;
  tree.heard = performance.now();
  if (told.whole || told.nodes.length || told.removed.length) layout();
  if (tree.chosen && !tree.nodes.has(tree.chosen)) select(0);
  if (tree.zoom && !tree.nodes.has(tree.zoom)) zoomTo(0);
}

/* Places: parents before children, in the order in which nodes were first seen, so that what was there
 * stays where it was. */
function layout() {
  for (const n of tree.nodes.values()) { n.kids.length = 0; n.leaves = 0; }
  const roots = [];
  for (const n of tree.nodes.values()) {
    const up = n.parent ? tree.nodes.get(n.parent) : null;
    n.up = up || null;
    (up ? up.kids : roots).push(n);
  }
  const order = [];
  const stack = roots.slice();
  while (stack.length) { const n = stack.pop(); order.push(n); for (const k of n.kids) stack.push(k); }
  for (let i = order.length - 1; i >= 0; i--) { // children first
    const n = order[i];
    n.leaves = n.kids.reduce((sum, k) => sum + k.leaves, 0) || 1;
    n.far = n.tokens + n.kids.reduce((most, k) => Math.max(most, k.far), 0);
    if (n.seq === Infinity) n.seq = n.kids.length ? Math.min(...n.kids.slice(0, 1000).map((k) => k.seq)) : ++tree.seq;
    if (n.kids.length > 1) n.kids.sort((a, b) => a.seq - b.seq);
  }
  roots.sort((a, b) => a.ns - b.ns || a.seq - b.seq);
  tree.roots = roots;
  tree.leaves = Math.max(1, roots.reduce((sum, n) => sum + n.leaves, 0));
  tree.depth = Math.max(1, roots.reduce((most, n) => Math.max(most, n.far), 0));
  let y = 0;
  for (const n of roots) { n.ty = y; n.x = 0; y += n.th = n.leaves / tree.leaves; }
  for (const n of order) {
    let at = n.ty;
    for (const k of n.kids) { k.x = n.x + n.tokens; k.ty = at; at += k.th = k.leaves / tree.leaves; }
    if (n.y < 0) { n.y = n.ty + n.th / 2; n.h = 0; }
  }
  tree.order = order;
  const nowMs = tree.told.now_ms;
  tree.oldest = Math.max(10, order.reduce((most, n) => Math.max(most, nowMs - n.used), 0) / 1000);
  tree.moving = performance.now();
  aim();
}

function aim() { // where the view is to be
  const n = tree.zoom && tree.nodes.get(tree.zoom);
  goal.x0 = n ? n.x : 0;
  goal.x1 = n ? n.x + n.far : tree.depth;
  goal.y0 = n ? n.ty : 0;
  goal.y1 = n ? n.ty + n.th : 1;
  redraw();
}

const still = matchMedia("(prefers-reduced-motion: reduce)");
let asked = 0;
function redraw() { if (!asked) asked = requestAnimationFrame(frame); }

function frame() {
  asked = 0;
  const begun = performance.now();
  let moves = false;
  const part = still.matches ? 1 : 0.22;
  for (const k of ["x0", "x1", "y0", "y1"]) {
    const far = goal[k] - view[k];
    if (Math.abs(far) > 1e-4 * Math.max(1, Math.abs(goal[k])) && part < 1) { view[k] += far * part; moves = true; } else view[k] = goal[k];
  }
  if (tree.moving) {
    let most = 0;
    for (const n of tree.order) {
      const dy = n.ty - n.y, dh = n.th - n.h;
      most = Math.max(most, Math.abs(dy), Math.abs(dh));
      n.y += dy * part; n.h += dh * part;
    }
    if (most < 2e-4 || part === 1) { for (const n of tree.order) { n.y = n.ty; n.h = n.th; } tree.moving = 0; } else moves = true;
  }
  drawTree();
  frames.push(performance.now() - begun);
  if (frames.length > 600) frames.shift();
  if (moves) redraw();
}

const scaled = (x) => $("scale").value === "log" ? Math.log2(1 + x / 8) : x;

function colourOf(n, nowMs) {
  switch ($("colour").value) {
  case "lock": return n.locks ? colours.accent : n.flags & 6 ? colours.amber : colours.ramp[3];
  case "hits": return colours.ramp[n.hits ? clamp(4 + Math.round(Math.log2(n.hits) * 3), 4, 23) : 0];
  case "tier": return n.tiers === 3 ? colours.violet : n.tiers === 2 ? colours.blue : colours.accent;
  case "session": return n.sessions ? n.sessions > 1 ? colours.violet : colours.accent : colours.ramp[0];
  case "namespace": return colours.names[n.ns % colours.names.length];
  default: { // from now to what has not been used for longest, by its logarithm
    const idle = Math.max(0, nowMs - n.used) / 1000;
    return colours.ramp[clamp(23 - Math.round(23 * Math.log2(1 + idle) / Math.log2(1 + tree.oldest)), 0, 23)];
  }
  }
}

function drawLegend() {
  if (!colours.ramp) return;
  const items = {
    age: [["ramp", `${time(tree.oldest)} ago to now`]],
    lock: [[colours.accent, "held by requests"], [colours.amber, "pinned or retained"], [colours.ramp && colours.ramp[3], "held by nobody"]],
    hits: [["ramp", "no hits to many"]],
    tier: [[colours.accent, "device"], [colours.violet, "device and host"], [colours.blue, "host alone"]],
    session: [[colours.violet, "several sessions"], [colours.accent, "one session"], [colours.ramp && colours.ramp[0], "none"]],
    namespace: [["", "each namespace its own"]],
  }[$("colour").value];
  fill($("legend"), ...items.map(([colour, text]) => {
    const s = el("span"), i = el("i");
    if (colour === "ramp") { i.className = "ramp"; i.style.background = `linear-gradient(90deg, ${colours["age-old"]}, ${colours["age-new"]})`; } else if (colour) i.style.background = colour;
    s.append(...(colour ? [i] : []), text);
    return s;
  }));
}

let ink = new Map();
function inkOn(colour) { // black or white, what can be read on it
  let c = ink.get(colour);
  if (!c) {
    pen.fillStyle = colour;
    const is = pen.fillStyle, v = is[0] === "#" ? rgb(is) : is.match(/[\d.]+/g).slice(0, 3).map(Number);
    c = 0.299 * v[0] + 0.587 * v[1] + 0.114 * v[2] > 150 ? "#201a1d" : "#fff";
    ink.set(colour, c);
  }
  return c;
}

let wanted = []; // nodes whose text there is room for, by size
function drawTree() {
  const box = canvas.getBoundingClientRect(), dpr = Math.min(devicePixelRatio || 1, 2);
  const w = Math.round(box.width), h = Math.round(box.height);
  if (!w || !h) return;
  if (canvas.width !== Math.round(w * dpr) || canvas.height !== Math.round(h * dpr)) { canvas.width = Math.round(w * dpr); canvas.height = Math.round(h * dpr); }
  pen.setTransform(dpr, 0, 0, dpr, 0, 0);
  pen.clearRect(0, 0, w, h);
  tree.drawn = [];
  wanted = [];
  if (!tree.roots.length) return;
  const nowMs = tree.told.now_ms + (performance.now() - tree.heard);
  const sx0 = scaled(0), sx = (x) => (scaled(Math.max(0, x - view.x0)) - sx0) / (scaled(view.x1 - view.x0) || 1) * w;
  const sy = (y) => (y - view.y0) / (view.y1 - view.y0 || 1) * h;
  const path = new Set();
  for (let n = tree.nodes.get(tree.chosen); n; n = n.up) path.add(n.id);
  const outline = [];
  let lastRow = -1;
  const stack = [];
  for (let i = tree.roots.length - 1; i >= 0; i--) stack.push(tree.roots[i]);
  pen.textBaseline = "middle";
  pen.font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
  while (stack.length) {
    const n = stack.pop(), top = sy(n.y), bottom = sy(n.y + n.h), high = bottom - top;
    if (bottom < -1 || top > h + 1) continue;
    const left = sx(n.x), tiny = high < 1;
    if (n.x + n.tokens < view.x0 && !tiny) { push(n); continue; }
    const right = sx(n.x + (tiny ? n.far : n.tokens));
    if (tiny) {
      const row = Math.floor(top);
      if (row === lastRow) continue; // another one has this line
      lastRow = row;
    }
    if (left > w) continue;
    const dim = tree.found && !tree.found.has(n.id) && !(tiny && within(n));
    const gapX = right - left > 4 ? 1 : 0, gapY = high > 3.5 ? 1 : 0;
    const colour = colourOf(n, nowMs);
    pen.globalAlpha = dim ? 0.22 : 1;
    pen.fillStyle = colour;
    const y0 = tiny ? Math.floor(top) : top, x0 = Math.max(left, -2), wide = Math.max(1, Math.min(right, w + 2) - x0 - gapX), tall = tiny ? 1 : Math.max(1, high - gapY);
    pen.fillRect(x0, y0, wide, tall);
    if (path.has(n.id) || n.locks || n.id === tree.hover) outline.push([n, x0, y0, wide, tall]);
    if (!tiny) {
      if (high > 13 && wide > 34) {
        const text = labels.get(n.id + ":" + n.generation);
        if (text === undefined && wide > 60) wanted.push([wide * high, n]);
        const shownTop = Math.max(y0, 0), shownBottom = Math.min(y0 + tall, h);
        pen.fillStyle = inkOn(colour);
        pen.globalAlpha = dim ? 0.3 : 0.92;
        if (shownBottom - shownTop > 12) fitText(text ? text : n.hits ? `${count(n.tokens)} · ${plural(n.hits, "hit")}` : count(n.tokens), Math.max(x0, 0) + 5, (shownTop + shownBottom) / 2, Math.min(wide, w - Math.max(x0, 0)) - 9, high > 30 && text ? `${exact(n.tokens)} tokens${n.hits ? " · " + plural(n.hits, "hit") : ""}` : "");
      }
      push(n);
    }
  }
  function push(n) { for (let i = n.kids.length - 1; i >= 0; i--) stack.push(n.kids[i]); }
  function within(n) { const s = [n]; while (s.length) { const k = s.pop(); if (tree.found.has(k.id)) return true; s.push(...k.kids); } return false; }
  pen.globalAlpha = 1;
  for (const [n, x, y, wide, tall] of outline) {
    if (n.locks) { pen.fillStyle = colours.text; pen.fillRect(x, y, 2, tall); }
    if (path.has(n.id) || n.id === tree.hover) {
      pen.strokeStyle = colours.text;
      pen.globalAlpha = n.id === tree.chosen ? 1 : 0.45;
      pen.lineWidth = n.id === tree.chosen ? 2 : 1;
      if (tall > 2) pen.strokeRect(x + pen.lineWidth / 2, y + pen.lineWidth / 2, Math.max(1, wide - pen.lineWidth), Math.max(1, tall - pen.lineWidth));
      pen.globalAlpha = 1;
    }
  }
}
function fitText(text, x, y, room, second) {
  const cut = (t) => {
    if (pen.measureText(t).width <= room) return t;
    let n = Math.max(1, Math.floor(room / 5.4));
    t = t.slice(0, n);
    while (t.length > 1 && pen.measureText(t + "…").width > room) t = t.slice(0, -1);
    return t.length > 1 ? t + "…" : "";
  };
  if (second && cut(second) === second) {
    pen.fillText(cut(text), x, y - 7);
    pen.globalAlpha *= 0.7;
    pen.fillText(second, x, y + 8);
  } else pen.fillText(cut(text), x, y);
}

/* Some texts for what there is room for, the largest first; a few at a time. */
async function fetchLabels() {
  if (!now() || !now().text || !wanted.length) return;
  const some = wanted.sort((a, b) => b[0] - a[0]).slice(0, 6).map(([, n]) => n);
  if (labels.size > 4000) labels.clear();
  await Promise.all(some.map(async (n) => {
    try {
      const told = await get(`/inspect/node?id=${n.id}&count=48`);
      if (told.generation === n.generation && told.text !== undefined) labels.set(n.id + ":" + n.generation, told.text.replace(/\s+/g, " ").trim() || "␣");
    } catch { labels.set(n.id + ":" + n.generation, ""); }
  }));
  redraw();
}

function hit(px, py) {
  const box = canvas.getBoundingClientRect();
  const y = view.y0 + py / box.height * (view.y1 - view.y0);
  const share = px / box.width, span = view.x1 - view.x0;
  const x = view.x0 + ($("scale").value === "log" ? (2 ** (share * Math.log2(1 + span / 8)) - 1) * 8 : share * span);
  let list = tree.roots, best = null;
  for (;;) {
    const n = list.find((k) => y >= k.y && y < k.y + k.h);
    if (!n) return best;
    if (n.x > x) return best;
    best = n;
    if (x < n.x + n.tokens) return n;
    list = n.kids;
  }
}

function showTip(n, px, py) {
  const tip = $("tip"), box = canvas.getBoundingClientRect();
  tip.hidden = !n;
  if (!n) return;
  const idle = Math.max(0, tree.told.now_ms - n.used) / 1000;
  const lines = [`${exact(n.tokens)} tokens from ${exact(n.x)} · ${plural(n.hits, "hit")} · used ${ago(idle)}`];
  const marks = [n.locks ? `held ${n.locks}×` : "", n.sessions ? plural(n.sessions, "session") : "", n.flags & 2 ? "pinned" : "", n.flags & 4 ? "retained" : "", n.tiers === 2 ? "on the host alone" : n.tiers === 3 ? "on device and host" : "", n.kids.length ? plural(n.kids.length, "branch").replace("branchs", "branches") : "", n.more ? `${count(n.more)} nodes more below` : ""].filter(Boolean);
  fill(tip, el("div", "", lines[0]), marks.length ? el("div", "", marks.join(" · ")) : null);
  const text = labels.get(n.id + ":" + n.generation);
  if (text) tip.append(el("span", "mono", text.slice(0, 140)));
  tip.style.left = clamp(px + 14, 4, Math.max(4, box.width - tip.offsetWidth - 4)) + "px";
  tip.style.top = (py + tip.offsetHeight + 24 > box.height ? Math.max(2, py - tip.offsetHeight - 10) : py + 16) + "px";
}

canvas.addEventListener("pointermove", (e) => {
  if (e.pointerType === "touch") return;
  const n = hit(e.offsetX, e.offsetY);
  if ((n ? n.id : 0) !== tree.hover) { tree.hover = n ? n.id : 0; redraw(); }
  showTip(n, e.offsetX, e.offsetY);
});
canvas.addEventListener("pointerleave", () => { tree.hover = 0; showTip(null); redraw(); });
canvas.addEventListener("click", (e) => { const n = hit(e.offsetX, e.offsetY); select(n ? n.id : 0); });
canvas.addEventListener("dblclick", (e) => { const n = hit(e.offsetX, e.offsetY); zoomTo(n && n.id !== tree.zoom ? n.id : 0); });
canvas.addEventListener("keydown", (e) => {
  const n = tree.nodes.get(tree.chosen), list = n ? n.up ? n.up.kids : tree.roots : tree.roots;
  const go = { ArrowLeft: n && n.up, ArrowRight: n ? n.kids[0] : tree.roots[0], ArrowDown: list[list.indexOf(n) + 1], ArrowUp: list[list.indexOf(n) - 1] }[e.key];
  if (e.key === "Enter" && n) zoomTo(n.id);
  else if (e.key === "Escape") tree.zoom ? zoomTo((tree.nodes.get(tree.zoom).up || { id: 0 }).id) : select(0);
  else if (go) select(go.id);
  else if (!e.key.startsWith("Arrow")) return;
  e.preventDefault();
});

function zoomTo(id) {
  tree.zoom = id;
  const path = [];
  for (let n = tree.nodes.get(id); n; n = n.up) path.unshift(n);
  const crumb = (text, to, here) => { const b = el("button", "", text); b.type = "button"; if (here) b.setAttribute("aria-current", "true"); b.addEventListener("click", () => zoomTo(to)); return b; };
  const some = path.length > 4 ? path.slice(-4) : path;
  fill($("crumbs"), crumb("whole tree", 0, !id), ...some.flatMap((n, i) => [el("span", "", i === 0 && path.length > 4 ? "… ›" : "›"), crumb(`${count(n.tokens)} tokens`, n.id, n.id === id)]));
  aim();
}

// ---- one node ----

let nodeAsked = 0, textFrom = 0, nodeText = "";
function select(id, zoom) {
  if (id !== tree.chosen) { textFrom = 0; nodeText = ""; }
  tree.chosen = id;
  if (zoom && id) {
    const n = tree.nodes.get(id);
    if (n && tree.zoom && !inside(n, tree.zoom)) zoomTo(0);
    canvas.scrollIntoView({ block: "nearest", behavior: still.matches ? "auto" : "smooth" });
  }
  redraw();
  drawNode();
}
const inside = (n, id) => { for (; n; n = n.up) if (n.id === id) return true; return false; };

async function drawNode() {
  const box = $("node"), id = tree.chosen, mine = ++nodeAsked;
  if (!id) return fill(box, el("p", "none", tree.nodes.size ? "Choose a block to see what it says, who holds it and why it is kept. Double-click zooms in." : ""));
  let n;
  try { n = await get(`/inspect/node?id=${id}&count=1024`); } catch (e) {
    if (mine === nodeAsked && e.status === 404) { fill(box, el("p", "none", "It has gone.")); }
    return;
  }
  if (mine !== nodeAsked || id !== tree.chosen) return;
  const head = el("div", "head");
  head.append(el("b", "", `${exact(n.tokens)} tokens`), el("span", "", `${exact(n.depth_tokens - n.tokens)} to ${exact(n.depth_tokens)} of the prompt`));
  const dl = el("dl");
  const row = (name, value) => { if (value === "" || value == null) return; const d = el("dd"); d.append(value); dl.append(el("dt", "", name), d); };
  row("hits", exact(n.hits));
  row("last used", n.idle_s === undefined ? null : ago(n.idle_s));
  row("on", [n.on_device ? "device" : "", n.on_host ? "host" : ""].filter(Boolean).join(", "));
  row("below it", n.children ? `${exact(n.tokens_below)} tokens in ${plural(n.children, "branch").replace("branchs", "branches")}` : "nothing");
  row("namespace", n.default_namespace ? "the default" : `no. ${n.namespace}`);
  row("priority", n.priority || null);
  row("window", n.window_tokens ? `${exact(n.window_tokens)} tokens` : null);
  row("node", `${n.id}`);
  const reqs = (now() ? now().requests : []).filter((r) => n.requests.includes(r.id));
  if (reqs.length) row("held by", reqs.slice(0, 4).map((r) => r.name ? r.name.slice(0, 18) : "#" + r.id).join(", ") + (reqs.length > 4 ? ` and ${reqs.length - 4} more` : ""));
  const why = el("ul", "why");
  n.why.forEach((w) => why.append(el("li", w.reason, w.text[0].toUpperCase() + w.text.slice(1) + ".")));
  const acts = el("div", "acts"), zoom = el("button", "quiet", tree.zoom === id ? "whole tree" : "zoom in");
  zoom.type = "button";
  zoom.addEventListener("click", () => { zoomTo(tree.zoom === id ? 0 : id); drawNode(); });
  acts.append(zoom);
  const text = el("div");
  if (n.text_hidden) text.append(el("p", "fine", "Prompts are not shown. --dashboard-text shows them."));
  else {
    const pre = el("pre", "", n.text), had = box.querySelector("pre"), at = had ? had.scrollTop : 0;
    text.append(el("h3", "", n.ids.length < n.tokens ? `Text, its first ${exact(n.ids.length)} tokens` : "Text"), pre);
    setTimeout(() => { pre.scrollTop = at; }, 0);
  }
  const scroll = box.scrollTop;
  fill(box, head, why, text, dl, acts);
  box.scrollTop = scroll;
}

// ---- search ----

let searchAsked = 0;
async function search() {
  const needle = $("needle").value.trim(), mine = ++searchAsked, list = $("found");
  if (!needle) { tree.found = null; list.hidden = true; return redraw(); }
  const ids = /^\d+([\s,]+\d+)*$/.test(needle) && !(now() && now().text && /^\d+$/.test(needle) && needle.length > 6) ? needle.split(/[\s,]+/).map(Number) : null;
  list.hidden = false;
  let told;
  try {
    told = await (await ask("/inspect/search", ids ? { ids, limit: 500 } : { text: needle, limit: 500 })).json();
  } catch (e) {
    if (mine === searchAsked) { tree.found = null; fill(list, el("p", "", e.message)); redraw(); }
    return;
  }
  if (mine !== searchAsked) return;
  tree.found = new Set(told.nodes.map((n) => n.id));
  fill(list, el("p", "", `${told.more ? "More than " : ""}${plural(told.nodes.length, "block")} ${told.nodes.length === 1 ? "has" : "have"} ${ids ? "these token ids" : "this text"}${told.cut ? "; the tree is too large to be searched whole" : ""}`),
    ...told.nodes.slice(0, 100).map((n) => {
      const b = el("button"); b.type = "button";
      b.append(el("span", "num", plural(n.tokens, "token")), el("span", "mono", n.snippet === undefined ? `node ${n.id}` : n.snippet.replace(/\s+/g, " ")));
      b.addEventListener("click", () => { list.querySelectorAll(".at").forEach((x) => x.classList.remove("at")); b.classList.add("at"); select(n.id, true); });
      return b;
    }));
  redraw();
}
$("search").addEventListener("submit", (e) => { e.preventDefault(); search(); });
let typing = 0;
$("needle").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(search, $("needle").value ? 350 : 0); });

// ---- chat ----

let talk = []; // another one with each conversation: what is still heard of an old one goes into the old one
let talking = null;
function message(cls, text) {
  const list = $("talk"), m = el("div", "msg " + cls), b = el("div", "body", text);
  if (list.querySelector(".nothing")) list.replaceChildren();
  m.append(b);
  list.append(m);
  list.scrollTop = list.scrollHeight;
  return { m, b };
}
function emptyChat() {
  fill($("talk"), el("p", "nothing", now() && !now().chat ? "This model has no chat template." : "Ask something, then something more: each answer says what of it was cached."));
}
$("chat-new").addEventListener("click", () => { if (talking) talking.abort(); talk = []; emptyChat(); });
$("words").addEventListener("keydown", (e) => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); $("say").requestSubmit(); } });
$("words").addEventListener("input", () => { const t = $("words"); t.style.height = "auto"; t.style.height = Math.min(120, t.scrollHeight + 2) + "px"; });
$("say").addEventListener("submit", async (e) => {
  e.preventDefault();
  if (talking) { talking.abort(); return; }
  const text = $("words").value.trim();
  if (!text) return;
  $("words").value = "";
  $("words").style.height = "auto";
  message("user", text);
  const mine = talk;
  mine.push({ role: "user", content: text });
  const { m, b } = message("assistant", "…");
  const stop = talking = new AbortController();
  $("send").textContent = "Stop";
  const begun = performance.now();
  let first = 0, said = "", usage = null, wrong = "";
  try {
    const answer = await ask("/v1/chat/completions", { messages: mine, stream: true, stream_options: { include_usage: true }, max_tokens: 1024 }, stop.signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
        const chunk = JSON.parse(line.slice(6));
        if (chunk.error) wrong = chunk.error.message;
        if (chunk.usage) usage = chunk.usage;
        const d = chunk.choices && chunk.choices[0] && chunk.choices[0].delta || {};
        const more = (d.reasoning_content || "") + (d.content || "");
        if (!more) continue;
        if (!first) first = performance.now();
        if (d.content) said += d.content;
        b.textContent = b.textContent === "…" ? more : b.textContent + more;
        $("talk").scrollTop = $("talk").scrollHeight;
      }
    }
  } catch (err) {
    if (err.name !== "AbortError") wrong = err.message || "the server has gone";
  }
  talking = null;
  $("send").textContent = "Send";
  if (wrong) { m.className = "msg wrong"; b.textContent = wrong; mine.pop(); return; }
  if (b.textContent === "…") b.textContent = "(nothing)";
  mine.push({ role: "assistant", content: said });
  if (!usage) { m.append(el("div", "note", "stopped")); return; }
  note(m, usage, first ? (first - begun) / 1000 : null, (performance.now() - (first || begun)) / 1000);
});

function note(m, usage, firstS, restS) {
  const d = usage.prompt_tokens_details || {}, all = usage.prompt_tokens, tiers = d.cached_tokens_details || (d.cached_tokens == null ? null : { device: d.cached_tokens });
  if (tiers) {
    const bar = el("div", "meter cachebar");
    for (const [tier, colour] of [["device", colours.accent], ["host", colours.blue], ["storage", colours.amber]])
      if (tiers[tier]) { const i = swatch(colour); i.style.width = 100 * tiers[tier] / all + "%"; i.title = `${tier}: ${tiers[tier]}`; bar.append(i); }
    m.append(bar);
  }
  const cached = tiers ? Object.entries(tiers).filter(([, n]) => n).map(([tier, n]) => `${exact(n)} ${tier === "device" ? "cached" : "from the " + tier}`).join(", ") || "none cached" : "";
  const rate = usage.completion_tokens > 1 && restS > 0 ? (usage.completion_tokens - 1) / restS : null;
  m.append(el("div", "note", [`${exact(all)} prompt tokens${cached ? ", " + cached : ""}`, firstS == null ? "" : `first token ${time(firstS)}`, rate ? `${count(rate)} tokens/s` : "", plural(usage.completion_tokens, "token")].filter(Boolean).join(" · ")));
  const why = words(d.cache_explanation);
  if (why && d.cache_explanation.device && d.cache_explanation.device.end !== "complete") m.lastChild.title = why;
  $("talk").scrollTop = $("talk").scrollHeight;
}

// ---- the loop ----

let lost = 0;
function online(words, is) {
  $("state").className = "state " + (is ? "on" : "off");
  $("state").querySelector(".words").textContent = words;
  document.body.classList.toggle("stale", !is);
}

async function poll() {
  clearTimeout(poll.timer);
  if (gateOpen) return;
  const stop = new AbortController();
  const slow = setTimeout(() => online(`waiting for the scheduler`, true), 3000), dead = setTimeout(() => stop.abort(), 60000);
  let wait = 1000;
  try {
    const hidden = document.hidden;
    const [s, t] = await Promise.all([get("/inspect/status", stop.signal), hidden ? null : get(`/inspect/tree?since=${tree.version}`, stop.signal)]);
    if (past.length && s.uptime_s < now().uptime_s) { past.length = 0; tree.version = 0; } // another life
    const fresh = !past.length;
    past.push({ t: s.unix_ms / 1000, s });
    if (past.length > MOST) past.shift();
    if (lost) { lost = 0; say(""); }
    online(`up ${time(s.uptime_s)}`, true);
    if (fresh) begin(s);
    if (t) takeTree(t);
    if (!hidden) drawAll(s);
  } catch (e) {
    if (e.status === 401 || (e.status === 403 && key && /administrator's key/.test(e.message))) {
      const had = key;
      key = "";
      store(sessionStorage, "radish-key", null);
      online("a key is wanted", false);
      clearTimeout(slow); clearTimeout(dead);
      return gate(true, had ? "That is not the administrator's key." : undefined);
    }
    lost++;
    wait = Math.min(8000, 500 * 2 ** lost);
    online(e.status ? "refused" : "no answer", false);
    say(e.status ? e.message : `The server does not answer. What is shown is as it was ${past.length ? time(Date.now() / 1000 - past[past.length - 1].t) + " ago" : "never"}; trying again.`);
  }
  clearTimeout(slow);
  clearTimeout(dead);
  poll.timer = setTimeout(poll, wait);
}

function begin(s) {
  $("model").textContent = `${s.model} · ${s.architecture} · ${s.computes_on}`;
  document.title = `radish · ${s.model}`;
  $("forget").hidden = !key;
  $("needle").placeholder = s.text ? "search text or token ids" : "search token ids";
  $("words").disabled = $("send").disabled = !s.chat;
  if (!talk.length) emptyChat();
  $("foot").replaceChildren(el("span", "", `radish ${s.radish}`), el("span", "", `context ${exact(s.context_length)}`), el("span", "", `page ${s.page_size}`), el("span", "", `schedules by ${s.schedule_policy}`), el("span", "", "prompts " + (s.text ? "are shown" : "are hidden")));
  if (!charts.length) makeCharts();
}

function drawAll(s) {
  drawTiles();
  charts.forEach((c) => c.draw());
  drawPools(s);
  if ($("colour").value === "age") drawLegend();
  drawEvictions(s);
  drawRequests(s);
  const t = tree.told, empty = !tree.nodes.size;
  $("tree-sum").textContent = !t ? "" : `${exact(t.nodes_total)} nodes, ${exact(t.tokens_total)} tokens${t.nodes_shown < t.nodes_total ? `; the ${exact(t.nodes_shown)} largest are shown` : ""}`;
  $("tree-empty").hidden = !empty;
  if (empty) fill($("tree-empty"), (() => { const d = el("div"); d.append(el("b", "", s.radix_cache ? "The cache is empty." : "The cache is off."), s.radix_cache ? "Ask something, below or from a program, and its prompt appears here." : "The server was started with --disable-radix-cache."); return d; })());
  redraw();
  drawNode();
  fetchLabels();
}

$("theme").value = store(localStorage, "radish-theme") || "auto";
$("theme").addEventListener("change", () => { store(localStorage, "radish-theme", $("theme").value); ink.clear(); paint(); if (now()) drawAll(now()); });
dark.addEventListener("change", () => { ink.clear(); paint(); });
$("colour").addEventListener("change", () => { drawLegend(); redraw(); });
$("scale").addEventListener("change", redraw);
$("span").addEventListener("change", () => charts.forEach((c) => c.draw()));
new ResizeObserver(() => { redraw(); if (now()) charts.forEach((c) => c.draw()); }).observe(document.body);
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
paint();
zoomTo(0);
poll();
})();
