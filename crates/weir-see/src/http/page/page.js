// The page of the admin listener: what the commands show, for a browser. One view at a time, chosen by the part of the
// address behind the #; a view that is left stops asking. Names come from configurations and requests, so that
// everything is put in as text, never as HTML.
"use strict";

const main = document.getElementById("main");
let left = new AbortController();

// ---- asking ---------------------------------------------------------------------------------------------------------

class Unauthorized extends Error {}

async function get(path, options) {
  const token = sessionStorage.getItem("token");
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = "Bearer " + token;
  const { signal } = left;
  const answer = await fetch(path, { headers, signal, ...options });
  if (answer.status === 401) throw new Unauthorized("the token is missing or wrong");
  if (!answer.ok) throw new Error((await answer.text()).trim() || "answered " + answer.status);
  return answer;
}

const ask = async (path, values) => (await get(path + query(values))).json();

/** Lines of JSON, a value each. */
async function askLines(path, values) {
  const text = await (await get(path + query(values))).text();
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

function query(values) {
  const set = Object.entries(values || {}).filter(([, value]) => value !== undefined && value !== "");
  return "?" + new URLSearchParams([...set, ["fmt", "json"]]).toString();
}

const ofLocation = (location) => 'location="' + location + '"';

// ---- drawing --------------------------------------------------------------------------------------------------------

/** An element with attributes, properties that are functions as listeners, and children. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

function show(...parts) {
  main.replaceChildren(...parts);
}

function time(ns) {
  if (ns === null || ns === undefined) return "-";
  const size = Math.abs(ns);
  if (size < 1e6) return (ns / 1e3).toFixed(1) + " µs";
  if (size < 1e9) return (ns / 1e6).toFixed(1) + " ms";
  return (ns / 1e9).toFixed(2) + " s";
}

const share = (part) => (part === null ? "-" : (part * 100).toFixed(1) + "%");
const rate = (number) => (number < 10 ? number.toFixed(1) : number.toFixed(0));
const path = (...parts) => "#/" + parts.map(encodeURIComponent).join("/");
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** A table; columns are [head, class]. */
function table(kind, columns, rows) {
  const head = columns.map(([text, wide]) => make("th", { class: wide }, text));
  return make("table", { class: kind }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
}

function cells(columns, values) {
  return values.map((value, at) => make("td", { class: columns[at][1] }, value));
}

// ---- lines of the configuration, and texts --------------------------------------------------------------------------

async function openText(file, line) {
  const text = await ask("text", { file, line });
  const list = document.getElementById("source-text");
  document.getElementById("source-name").textContent = file + ":" + line;
  list.start = text.first;
  list.replaceChildren(
    ...text.lines.map((words, at) => make("li", { class: text.first + at === line ? "meant" : undefined }, words)),
  );
  document.getElementById("source").showModal();
  const meant = list.querySelector(".meant");
  if (meant) meant.scrollIntoView({ block: "center" });
}

/** A link to a line of a text. */
function place(file, line, words) {
  const label = file.split("/").pop() + ":" + line + (words ? "  " + words : "");
  const open = (event) => {
    event.preventDefault();
    openText(file, line).catch(failed);
  };
  return make("a", { href: "#", title: file, click: open }, label);
}

/** The lines of the configuration that put `name` into a location. */
async function lines(location, name) {
  const found = await ask("lines", { location, name });
  return make("div", { class: "lines" }, ...found.map((line) => place(line.file, line.line, line.text)));
}

/** `/srv/waf.lua:88`: the file and the line of a frame of Lua. */
function luaPlace(name) {
  const found = /^(.*):(\d+)( \[jit\])?$/.exec(name);
  return found && found[1].endsWith(".lua") ? { file: found[1], line: Number(found[2]) } : undefined;
}

// ---- live -----------------------------------------------------------------------------------------------------------

const ROUTES = [["location"], ["req/s"], ["5xx"], ["p50", "wide"], ["p99"], ["run"], ["wait", "wide"]];

async function live() {
  const known = new Map();
  const body = table("routes", ROUTES, []);
  const total = make("p", { class: "faint" }, "…");
  show(make("h1", {}, "Locations"), total, body);
  for (const row of await ask("top/routes", { every: "0" })) known.set(row.location, { ...row, requests_per_second: 0 });
  for (let every = "300ms"; !left.signal.aborted; every = "1s") {
    for (const row of known.values()) row.requests_per_second = 0;
    for (const row of await ask("top/routes", { every })) known.set(row.location, row);
    const rows = [...known.values()].sort((a, b) => b.requests_per_second - a.requests_per_second);
    const sum = rows.reduce((sum, row) => sum + row.requests_per_second, 0);
    total.textContent = rate(sum) + " requests a second";
    body.tBodies[0].replaceChildren(...rows.map(routeRow));
  }
}

function routeRow(row) {
  const failed = make("span", { class: row.share_5xx > 0 ? "bad" : undefined }, share(row.share_5xx));
  const values = [
    make("a", { href: path("route", row.location) }, row.location),
    rate(row.requests_per_second), failed, time(row.p50_ns), time(row.p99_ns), time(row.run_ns), time(row.wait_ns),
  ];
  return make("tr", {}, ...cells(ROUTES, values));
}

// ---- a location -----------------------------------------------------------------------------------------------------

const REQUESTS = [["request"], ["status"], ["kept as", "wide"], ["total"], ["run", "wide"], ["wait", "wide"]];

async function route(location) {
  const average = make("div", {}, make("p", { class: "faint" }, "waiting for requests…"));
  const kept = make("div", {});
  const links = ["cpu", "wall", "wait"].map((kind) => make("a", { href: path("flame", kind, location) }, "flame " + kind));
  const compare = make("a", { href: path("compare", ofLocation(location)) }, "compare");
  show(
    make("h1", {}, location), make("div", { class: "bar" }, ...links, compare),
    await lines(location, ""), make("h2", {}, "Kept requests"), kept, make("h2", {}, "Average"), average,
  );
  const requests = await askLines("slow", { n: 30, match: ofLocation(location) });
  kept.replaceChildren(requests.length ? table("", REQUESTS, requests.map(requestRow)) : "none");
  const mean = await ask("trace/avg", { n: 200, for: "3s", match: ofLocation(location) });
  if (mean.requests === 0) average.replaceChildren("no request came in three seconds");
  else average.replaceChildren(make("p", {}, mean.requests + " requests"), tree(mean.root, location, mean.requests));
}

function requestRow({ why, record }) {
  const link = make("a", { href: path("req", record.id) }, record.method + " " + record.path);
  const values = [link, String(record.status), why, time(record.total_ns), time(record.run_ns), time(record.wait_ns)];
  return make("tr", {}, ...cells(REQUESTS, values));
}

// ---- a request's tree -----------------------------------------------------------------------------------------------

const NODES = [["", ""], ["run"], ["wait"], ["calls", "wide"], ["bytes", "wide"]];

function tree(root, location, requests) {
  const rows = [];
  const whole = Math.max(1, root.run_ns + root.wait_ns);
  const walk = (node, depth, above) => {
    const all = node.run_ns + node.wait_ns;
    if (depth >= 0) rows.push(treeRow(node, depth, above, all / whole, location, requests));
    for (const child of node.children) walk(child, depth + 1, node.kind);
  };
  walk(root, -1, "request");
  return table("tree", NODES, rows);
}

function called(node, above) {
  const own = node.name || node.kind;
  return ["phase", "connection", "handler", "other", above].includes(node.kind) || !node.name ? own : node.kind + " " + own;
}

function treeRow(node, depth, above, part, location, requests) {
  const bar = make("span", { class: "share" });
  bar.style.width = (part * 100).toFixed(1) + "%";
  const below = make("div", {});
  const open = async () => {
    if (below.firstChild) return below.replaceChildren();
    const script = luaPlace(node.name);
    below.replaceChildren(script ? place(script.file, script.line) : await lines(node.location || location, node.name));
  };
  const name = make("button", { class: "name", type: "button", click: () => open().catch(failed) }, called(node, above));
  const first = make("div", {}, bar, name, below);
  first.style.marginLeft = depth + "em";
  const each = (value) => (value ? value / requests : 0);
  const bytes = node.bytes_in || node.bytes_out ? rate(each(node.bytes_in)) + " → " + rate(each(node.bytes_out)) : "";
  const wait = node.wait_ns ? time(each(node.wait_ns)) : "";
  return make("tr", {}, ...cells(NODES, [first, time(each(node.run_ns)), wait, each(node.calls).toFixed(requests > 1 ? 2 : 0), bytes]));
}

async function request(id) {
  const { record, tree: found, why } = await ask("req/" + encodeURIComponent(id));
  const location = record.location || "";
  show(
    make("h1", {}, record.method + " " + record.path),
    make("p", {}, record.status + ", " + time(record.total_ns) + " = run " + time(record.run_ns) + " + wait " + time(record.wait_ns) +
      ", worker " + record.worker + ", kept as " + why),
    make("div", { class: "bar" },
      make("a", { href: path("route", location) }, "location " + location),
      make("a", { href: path("flame", "cpu", location) }, "flame cpu"), make("a", { href: path("flame", "wall", location) }, "flame wall")),
    tree(found.root, location, 1),
  );
}

// ---- flame graphs ---------------------------------------------------------------------------------------------------

async function flame(kind = "cpu", location = "") {
  const kinds = ["cpu", "wall", "wait", "alloc", "gc", "jit"];
  const chosen = make("select", { "aria-label": "what", change: () => (window.location.hash = path("flame", chosen.value, location)) },
    ...kinds.map((name) => make("option", { selected: name === kind }, name)));
  const search = make("input", { type: "search", placeholder: "search", "aria-label": "search" });
  const found = make("span", { class: "faint" });
  const again = make("button", { type: "button", click: start }, "record");
  const drawing = make("div", { class: "flame" });
  const detail = make("div", { id: "detail", class: "faint" }, "recording 3 seconds…");
  show(
    make("h1", {}, "Flame graph " + (location && "of " + location)), make("div", { class: "bar" }, chosen, again, search, found),
    drawing, detail,
  );
  const record = async () => {
    const stacks = await ask("flame/" + kind, { seconds: 3, route: location });
    const graph = new Flame(stacks, drawing, detail);
    const find = () => (found.textContent = graph.find(search.value));
    search.oninput = find;
    find();
  };
  await record();
}

/** Stacks merged from the outermost frame on, and drawn: each frame as wide as its share. */
class Flame {
  constructor(stacks, drawing, detail) {
    this.unit = stacks.kind === "alloc" ? (n) => (n / 1024).toFixed(1) + " KiB" : time;
    this.root = { frame: { name: "all", origin: "all" }, value: 0, own: 0, children: new Map(), depth: 0 };
    for (const stack of stacks.stacks) this.add(stack.frames, stack.value_ns ?? stack.value_bytes);
    this.drawing = drawing;
    this.detail = detail;
    this.word = "";
    if (this.root.value === 0) detail.textContent = "nothing was recorded: no requests came";
    else this.zoom(this.root);
  }

  add(frames, value) {
    let at = this.root;
    at.value += value;
    for (const frame of frames) {
      const key = frame.origin + " " + frame.name + ":" + (frame.line || 0);
      if (!at.children.has(key)) {
        at.children.set(key, { frame, value: 0, own: 0, children: new Map(), above: at, depth: at.depth + 1 });
      }
      at = at.children.get(key);
      at.value += value;
    }
    at.own += value;
  }

  zoom(to) {
    this.at = to;
    this.rows = 0;
    this.boxes = [];
    for (let above = to.above; above; above = above.above) this.box(above, 0, 1, true);
    this.below(to, 0, 1);
    const height = window.matchMedia("(max-width: 640px)").matches ? 25 : 19;
    for (const [box, node] of this.boxes) box.style.top = node.depth * height + "px";
    this.drawing.style.height = (this.rows + 1) * height + "px";
    this.drawing.replaceChildren(...this.boxes.map(([box]) => box));
    this.mark();
    this.tell(to).catch(failed);
  }

  below(node, from, width) {
    if (width < 0.0008) return;
    this.box(node, from, width, false);
    let at = from;
    for (const child of node.children.values()) {
      const part = (width * child.value) / node.value;
      this.below(child, at, part);
      at += part;
    }
  }

  box(node, from, width, around) {
    const words = node.frame.name;
    const box = make("div", { class: node.frame.origin + (around ? " around" : ""), title: this.words(node), click: () => this.zoom(node) }, words);
    box.style.left = (from * 100).toFixed(3) + "%";
    box.style.width = (width * 100).toFixed(3) + "%";
    this.rows = Math.max(this.rows, node.depth);
    this.boxes.push([box, node]);
  }

  words(node) {
    const own = node.own ? ", own " + this.unit(node.own) : "";
    return node.frame.name + " (" + this.unit(node.value) + ", " + share(node.value / this.root.value) + own + ")";
  }

  /** What the frame is, and where it comes from: the line of a script, or that of the configuration. */
  async tell(node) {
    const { frame } = node;
    const parts = [make("div", {}, this.words(node))];
    const script = frame.origin === "lua" && luaPlace(frame.name);
    if (script) parts.push(make("div", { class: "lines" }, place(script.file, script.line)));
    else if (frame.file) parts.push(make("div", { class: "faint" }, frame.file + ":" + frame.line));
    this.detail.replaceChildren(...parts);
    const path = [];
    for (let at = node; at.above; at = at.above) path.unshift(at.frame);
    const by = path.findLast((frame) => frame.origin === "module");
    if (!path.length || path[0].name.startsWith("(")) return;
    const found = await lines(path[0].name, by ? by.name.split(" ").pop() : "");
    if (this.at === node) this.detail.append(found);
  }

  find(word) {
    this.word = word.toLowerCase();
    this.mark();
    if (!word) return "";
    const sum = (node) => (this.isFound(node) ? node.value : [...node.children.values()].reduce((all, child) => all + sum(child), 0));
    return share(sum(this.root) / Math.max(1, this.root.value));
  }

  isFound(node) {
    return this.word !== "" && node.frame.name.toLowerCase().includes(this.word);
  }

  mark() {
    for (const [box, node] of this.boxes || []) box.classList.toggle("found", this.isFound(node));
  }
}

// ---- comparing ------------------------------------------------------------------------------------------------------

const SIDES = [["", ""], ["A"], ["B"], ["B − A"], ["±", "wide"], ["change"]];

async function compare(a = "", b = "") {
  const side = (name, value) => make("input", { "aria-label": name, placeholder: name + ": /path, or location=", value, list: "routes" });
  const [one, two] = [side("A", a), side("B", b)];
  const result = make("div", {});
  const begin = (event) => {
    event.preventDefault();
    result.replaceChildren(make("p", { class: "faint" }, "ten rounds of requests as they come…"));
    ask("compare", { a: one.value, b: two.value, rounds: 10, n: 100 })
      .then((found) => result.replaceChildren(compared(found)))
      .catch((error) => result.replaceChildren(make("p", { class: "bad" }, error.message)));
  };
  const routes = make("datalist", { id: "routes" });
  show(make("h1", {}, "Compare"), make("form", { class: "bar", submit: begin }, one, two, make("button", {}, "compare")), routes, result);
  const known = await ask("top/routes", { every: "0" });
  routes.replaceChildren(...known.map((row) => make("option", { value: ofLocation(row.location) })));
}

function compared(found) {
  const rows = [];
  const walk = (node, depth, above) => {
    if (Math.max(node.a_ns ?? 0, node.b_ns ?? 0) < 50) return;
    const half = node.high_ns === null ? null : (node.high_ns - node.low_ns) / 2;
    const seen = half !== null && Math.abs(node.difference_ns) > half;
    const change = !seen ? "not seen" : node.a_ns ? (node.difference_ns > 0 ? "+" : "") + share(node.difference_ns / node.a_ns) : "new";
    const name = make("div", {}, depth < 0 ? "request" : called(node, above));
    name.style.marginLeft = Math.max(0, depth) + "em";
    const colour = !seen ? "faint" : node.difference_ns > 0 ? "bad" : "good";
    const values = [name, time(node.a_ns), time(node.b_ns), time(node.difference_ns), time(half), make("span", { class: colour }, change)];
    rows.push(make("tr", {}, ...cells(SIDES, values)));
    for (const child of node.children) walk(child, depth + 1, node.kind);
  };
  walk(found.root, -1, "request");
  const words = (name, side) => make("p", {}, name + " " + side.name + ": " + side.requests + " requests");
  return make("div", {}, words("A", found.a), words("B", found.b), table("", SIDES, rows),
    make("p", { class: "faint" }, "running time a request; 95% intervals of " + found.rounds + " paired rounds"));
}

// ---- blocked loops --------------------------------------------------------------------------------------------------

async function tick() {
  const ticker = document.getElementById("ticker");
  ticker.textContent = "no loop was blocked since this page was opened";
  for (;;) {
    try {
      const answer = await get("blocked", { signal: undefined });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        text += piece.value;
        const events = text.split("\n\n");
        text = events.pop();
        for (const event of events) tell(ticker, event);
      }
    } catch (error) {
      if (error instanceof Unauthorized) return;
    }
    await pause(2000);
  }
}

function tell(ticker, event) {
  const data = event.split("\n").find((line) => line.startsWith("data: "));
  if (!data) return;
  const stall = JSON.parse(data.slice(6));
  const verb = stall.ongoing ? "is blocked for " : "was blocked for ";
  const victims = stall.victims.length ? ", " + stall.victims.length + " requests waited" : "";
  ticker.textContent = "worker " + stall.worker + " " + verb + time(stall.duration_ns) + " in " + stall.site + ", location " + stall.location + victims;
  ticker.classList.add("fresh");
  clearTimeout(ticker.timer);
  ticker.timer = setTimeout(() => ticker.classList.remove("fresh"), 5000);
}

// ---- views ----------------------------------------------------------------------------------------------------------

const VIEWS = { "": live, route, req: request, flame, compare };

function failed(error) {
  if (error.name === "AbortError") return;
  if (error instanceof Unauthorized) return login();
  main.prepend(make("p", { class: "bad" }, error.message));
}

/** Asks for the token of the admin line; it is kept until the tab is closed. */
function login() {
  const token = make("input", { type: "password", "aria-label": "token", placeholder: "token" });
  const enter = (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", token.value);
    tick();
    start();
  };
  show(make("h1", {}, "Token"), make("form", { class: "bar", submit: enter }, token, make("button", {}, "enter")));
}

function start() {
  left.abort();
  left = new AbortController();
  const parts = window.location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const view = VIEWS[parts[0]] || live;
  for (const link of document.querySelectorAll("nav a")) {
    link.classList.toggle("here", link.hash.replace("#/", "") === (parts[0] === "flame" || parts[0] === "compare" ? parts[0] : ""));
  }
  show(make("p", { class: "faint" }, "…"));
  view(...parts.slice(1)).catch(failed);
}

function theme() {
  const root = document.documentElement;
  const dark = getComputedStyle(root).colorScheme === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

document.documentElement.dataset.theme = localStorage.getItem("theme") || "";
document.getElementById("theme").addEventListener("click", theme);
window.addEventListener("hashchange", start);
start();
tick();
