// ---- workers --------------------------------------------------------------------------------------------------------

const WORKERS = [
  figure("worker", (row) => row.key),
  figure("busy", (row) => share(row.busy), { isBad: (row) => row.busy > 0.9 }),
  sparkColumn("", "late", (row) => row.busys, { top: 1 }),
  figure("req/s", (row) => rate(row.rate)),
  sparkColumn("", "rate", (row) => row.rates, { wide: "wide" }),
  figure("conns", (row) => row.connections),
  figure("share", (row) => share(row.part), { kind: "wide" }),
  figure("accept/s", (row) => rate(row.accepted), { kind: "wide" }),
  figure("cpu", (row) => share(row.cpu), { kind: "wide" }),
  figure("no core", (row) => share(row.queue), { isBad: (row) => row.queue > 0.2 }),
  figure("blocked", (row) => String(row.stalls), { isBad: (row) => row.stalls > 0 }),
];

function workerRows({ workers, lengths_ns: lengths, points }) {
  const last = (values) => values[values.length - 1];
  const recent = (values) => values.slice(-5).filter((value) => value !== null);
  const mean = (values) => (recent(values).length ? sum(recent(values)) / recent(values).length : null);
  const all = sum(workers.map((worker) => last(worker.connections)));
  return workers.map((worker) => ({
    key: String(worker.worker),
    points,
    busy: mean(worker.busy),
    busys: worker.busy,
    rate: mean(perSecond(worker.requests, lengths)),
    rates: perSecond(worker.requests, lengths),
    connections: String(last(worker.connections) ?? "-").replace(/\.0+$/, ""),
    part: all ? (last(worker.connections) || 0) / all : null,
    accepted: mean(perSecond(worker.accepted, lengths)),
    cpu: mean(worker.cpu),
    queue: mean(worker.run_queue),
    stalls: sum(worker.stalls),
  }));
}

const FLIGHT = [
  { head: "request", begin: (row) => make("span", {}, row.request) },
  { head: "location", kind: "wide", begin: (row) => make("a", { href: path("route", row.location) }, row.location) },
  figure("worker", (row) => String(row.worker), { kind: "wide" }),
  figure("age", (row) => time(row.age_ns)),
  figure("now", (row) => row.state),
  figure("since", (row) => time(row.state_ns), { kind: "wide" }),
  figure("in", (row) => row.site),
];

/** Workers over time, what they have in flight, and what blocked them. */
async function workers() {
  const history = new HistoryFeed(span());
  const all = new LiveTable("workers", WORKERS);
  const flight = new LiveTable("flight", FLIGHT);
  const none = make("p", { class: "faint" });
  const blocked = make("div", {});
  const queue = make("div", {});
  show(make("div", { class: "bar" }, make("h1", {}, "Workers"), spans(history.span)), all.element,
    make("p", { class: "faint" }, "busy: share of the time in which a worker did not wait for events. no core: it was ready to run and had no processor."),
    make("h2", {}, "In flight"), flight.element, none, make("h2", {}, "Blocked loops"), blocked, make("h2", {}, "Queues"), queue);
  queueTable(queue).catch(failed);
  let seen = "";
  await follow(async () => {
    all.update(workerRows(await history.load()));
    const requests = await ask("reqs", { n: 100 });
    flight.update(requests.map((row) => ({ ...row, key: row.id })));
    none.textContent = requests.length ? "" : "no request is in flight";
    const stalls = await ask("blocked", { follow: "no", merged: 1, n: 500 });
    const now = JSON.stringify(stalls.map((row) => [row.location, row.by, row.times, row.total_ns]));
    if (now !== seen) blocked.replaceChildren(blockedTable(stalls));
    seen = now;
  });
}

async function queueTable(shown) {
  shown.replaceChildren(make("p", { class: "faint" }, "measuring one second…"));
  shown.replaceChildren(figures(await ask("queue", { every: "1s" })));
}

/** What blocked loops: a row a cause, those with most time first. */
function blockedTable(rows) {
  if (!rows.length) return make("p", { class: "faint" }, "no loop was blocked since the server began, as far as is remembered");
  const columns = [["what"], ["location"], ["times"], ["worst"], ["together", "wide"], ["made wait", "wide"], ["last"]];
  return table("blocked", columns, rows.map((row) => {
    const line = luaOf(row.stack.filter((frame) => row.by.includes(frame)));
    const words = line ? row.by.replace(line, "").trim() + " " : row.by;
    const stack = row.stack.length ? row.stack.slice().reverse().join("\n") : "nobody looked into it while it lasted";
    const what = make("details", {}, make("summary", {}, words, line ? lineLink(line.trim()) : ""), make("pre", {}, stack));
    const when = row.ended_ns === null ? "goes on" : ago(row.ended_ns);
    const worst = row.request ? make("a", { href: path("req", row.request) }, time(row.longest_ns)) : time(row.longest_ns);
    const values = [what, make("a", { href: path("route", row.location) }, row.location), String(row.times), worst, time(row.total_ns), String(row.waited), when];
    return make("tr", {}, ...cells(columns, values));
  }));
}

const ago = (ns) => (ns < 60e9 ? (ns / 1e9).toFixed(0) + " s ago" : (ns / 60e9).toFixed(0) + " min ago");

/** The innermost frame of Lua in a stack, innermost first. */
const luaOf = (stack) => stack.find((frame) => /\.lua:\d+|_by_lua.*:\d+/.test(frame));

// ---- upstreams ------------------------------------------------------------------------------------------------------

const PEERS = [
  figure("peer", (row) => row.key),
  figure("state", (row) => row.state, { isBad: (row) => !["up", "healthy", "ok", "-"].includes(row.state) }),
  figure("tries/s", (row) => rate(row.rate)),
  sparkColumn("", "rate", (row) => row.rates, { wide: "wide" }),
  figure("failed", (row) => share(row.failedShare), { isBad: (row) => row.failedShare > 0 }),
  figure("broken off", (row) => row.broken, { isBad: (row) => row.broken !== "-" }),
  figure("p50", (row) => time(row.p50), { kind: "wide" }),
  figure("p99", (row) => time(row.p99)),
  sparkColumn("", "late", (row) => row.p99s),
  figure("in flight", (row) => row.flight, { kind: "wide" }),
  figure("requests", (row) => row.all, { kind: "wide" }),
  figure("last error", (row) => row.error),
];

/** Upstreams, their peers over time, states and causes. */
async function upstreams() {
  const history = new HistoryFeed(span());
  const blocks = make("div", {});
  const tables = new Map();
  const tries = new PeerTries();
  const closes = new CloseTable(isToServer);
  show(make("div", { class: "bar" }, make("h1", {}, "Upstreams"), spans(history.span)), blocks,
    make("p", { class: "faint" }, "failed, broken off and requests: since the server began; repeated: tries that were made again, so that no client saw it. p50 and p99: how long tries waited for the peer."),
    make("h2", {}, "Why connections to servers end"), closes.element);
  await follow(async () => {
    const known = await history.load();
    const groups = await ask("upstreams");
    tries.look(groups);
    const series = new Map(known.upstreams.series.map((one) => [one.name, one]));
    const inside = new Set();
    const shown = groups.map((group) => {
      const peers = group.servers.flatMap((server) => server.peers);
      peers.forEach((peer) => inside.add(peer.address));
      const state = (peer) => tries.state(group.name, peer);
      return { name: group.name, words: group.method + sourceOf(group), rows: peers.map((peer) => peerRow(peer, series.get(peer.address), known, state(peer))) };
    });
    const others = known.upstreams.series.filter((one) => !inside.has(one.name));
    if (others.length) shown.push({ name: "without an upstream block", words: "", rows: others.map((one) => peerRow({ address: one.name }, one, known)) });
    for (const group of shown) {
      if (!tables.has(group.name)) tables.set(group.name, beginGroup(blocks, group.name));
      const { words, rows } = tables.get(group.name);
      words.textContent = group.words;
      rows.update(group.rows);
    }
    await closes.load();
    if (!shown.length && !blocks.firstChild) blocks.append(make("p", { class: "faint" }, "there are no upstreams, and no peer was asked"));
  });
}

/** What became of the tries of the last ten seconds: a peer that gets requests and fails all of them is not just up. */
class PeerTries {
  constructor() {
    this.looks = [];
  }

  look(groups) {
    const counts = new Map();
    for (const group of groups) for (const server of group.servers) for (const peer of server.peers) counts.set(group.name + " " + peer.address, [peer.requests, peer.faults]);
    this.looks.push(counts);
    if (this.looks.length > 11) this.looks.shift();
  }

  state(group, peer) {
    if (peer.health !== "up") return peer.health;
    const [requests, faults] = this.looks[0].get(group + " " + peer.address) || [0, 0];
    const lately = [peer.requests - requests, peer.faults - faults];
    // Of one that is asked seldom all counts.
    const [tries, failed] = lately[0] >= 3 ? lately : [peer.requests, peer.faults];
    return tries >= 3 && failed >= tries ? "up, all tries fail" : "up";
  }
}

function beginGroup(blocks, name) {
  const group = { words: make("span", { class: "faint" }), rows: new LiveTable("peers", PEERS) };
  blocks.append(make("h2", {}, name + " ", group.words), group.rows.element);
  return group;
}

const sourceOf = ({ source }) => (source ? ", from " + source.place + (source.error ? ": " + source.error : "") : "");

function peerRow(peer, series, known, state) {
  const none = { key: peer.address, points: known.points, rates: [], p99s: [], rate: 0, share5xx: null, p50: null, p99: null };
  const error = peer.last_error ? peer.last_error.cause + " at " + clock(peer.last_error.at * 1000) : "";
  return {
    ...(series ? trafficRow(series, known, known.points) : none),
    key: peer.address,
    state: state || "-",
    flight: String(peer.in_flight ?? "-"),
    all: String(peer.requests ?? "-"),
    failedShare: peer.requests ? Math.min(1, Math.max(peer.failed, peer.faults) / peer.requests) : null,
    broken: ["refused", "reset", "repeated"].filter((key) => peer[key]).map((key) => peer[key] + " " + key).join(", ") || "-",
    error: [error, peer.last_failed_check].filter(Boolean).join("; ") || "-",
  };
}

// ---- why connections end ----------------------------------------------------------------------------------------------

const CLOSES = [
  figure("protocol", (row) => row.what.replace(/^to_/, "").replaceAll("_", " ")),
  figure("first", (row) => row.by),
  figure("reason", (row) => row.reason.replaceAll("_", " ")),
  figure("closed/s", (row) => rate(row.lately)),
  figure("share", (row) => share(row.part), { kind: "wide" }),
  figure("total", (row) => String(row.total)),
  figure("", (row) => row.means, { kind: "wide says" }),
];

/** Those that `isMeant` of what ended, and why: the most frequent since the view was opened first. */
class CloseTable {
  constructor(isMeant) {
    this.isMeant = isMeant;
    this.table = new LiveTable("closes", CLOSES);
    this.none = make("p", { class: "faint" });
    this.element = make("div", {}, this.table.element, this.none);
    this.looks = [];
  }

  async load() {
    const rows = (await ask("top/closes", { every: "0" })).filter(this.isMeant);
    const totals = new Map(rows.map((row) => [closeKey(row), row.total]));
    // The rate is of the last ten seconds.
    this.looks.push({ at: performance.now(), totals });
    if (this.looks.length > 11) this.looks.shift();
    const [first] = this.looks;
    const seconds = (performance.now() - first.at) / 1000;
    const all = sum(rows.map((row) => row.total));
    const shown = rows.map((row) => {
      const key = closeKey(row);
      const since = row.total - (first.totals.get(key) || 0);
      return { ...row, key, part: row.total / all, lately: this.looks.length > 1 ? since / Math.max(seconds, 0.1) : null };
    });
    shown.sort((a, b) => b.lately - a.lately || b.total - a.total || (a.key < b.key ? -1 : 1));
    this.table.update(shown);
    this.none.textContent = shown.length ? "" : "none has ended yet";
  }
}

const closeKey = (row) => [row.what, row.by, row.reason].join(" ");
const isToServer = (row) => row.what.startsWith("to_");

// ---- Lua, and what else the server has ------------------------------------------------------------------------------

/** Views with a heading and a table each; one that is not there says so. */
async function sections(title, parts) {
  const shown = parts.map(([head, words]) => ({ body: make("div", {}, "…"), head, words }));
  const again = make("button", { type: "button", click: start }, "refresh");
  show(make("div", { class: "bar" }, make("h1", {}, title), again),
    ...shown.flatMap(({ head, words, body }) => [make("h2", {}, head), make("p", { class: "faint" }, words), body]));
  await Promise.all(parts.map(async ([, , load], at) => {
    try {
      shown[at].body.replaceChildren(await load());
    } catch (error) {
      if (error instanceof Unauthorized || error.name === "AbortError") throw error;
      shown[at].body.replaceChildren(make("p", { class: "faint" }, error.message));
    }
  }));
}

const rowsOf = (path, values) => async () => figures(await ask(path, values));

function lua() {
  const script = (row) => {
    const found = Object.values(row).map(String).map(luaPlace).find(Boolean);
    return found && place(found.file, found.line);
  };
  const traps = async () => figures(await ask("lua/traps"), { links: { place: script } });
  return sections("Lua", [
    ["Machines", "A VM a worker: its heap and its garbage collection.", rowsOf("lua/gc")],
    ["What blocks", "Functions that hold the worker, and lines that called them.", traps],
    ["Dictionaries", "Shared memory: how full, how often used, how long locked.", rowsOf("dict")],
    ["Timers", "Those that wait and those that run.", rowsOf("lua/timers")],
    ["Compiling", "Why traces were not made.", rowsOf("lua/jit")],
    ["Memory by line", "Who allocated what is alive, by samples.", rowsOf("lua/heap")],
  ]);
}

/** Resources, memory, connections, logs and everything else that is counted for the server as a whole. */
function server() {
  const closes = new CloseTable((row) => !isToServer(row));
  follow(() => closes.load()).catch(failed);
  return sections("Server", [
    ["Resources", "Use, saturation and errors of each, in the last second and since the server began.", rowsOf("use", { every: "1s" })],
    ["Memory", "What it is held for, the heaviest kind first; each: what one thing takes.", rowsOf("top/memory", { every: "0" })],
    ["Why connections of clients end", "Who was first and why, streams of HTTP/2 too; connections to servers are with the upstreams.", async () => closes.element],
    ["Error log", "The last lines from warn on, latest first, those that differ in numbers alone counted; arguments of requests are left out.", logLines],
    ["Phases", "Since the server began.", rowsOf("top/phases", { every: "0" })],
    ["Modules", "Since the server began, those with most time first.", rowsOf("top/modules", { every: "0" })],
    ["Keys", "What profile_key counts, since the server began.", rowsOf("top/keys", { every: "0" })],
    ["Who made whom wait", "Locations that held a worker while requests of others were ready.", rowsOf("blame")],
    ["Counters", "As /metrics has them, but for those of locations and those that are 0.", counters],
  ]);
}

async function logLines() {
  const { lines, gone } = await ask("log", { n: 100 });
  if (!lines.length) return make("p", { class: "faint" }, "nothing was logged");
  return make("div", { class: "log" }, ...alike(lines).map(logLine), gone ? make("p", { class: "faint" }, gone + " lines before these are not remembered") : undefined);
}

/** Lines that differ in numbers alone, as one: the latest of them with their count. */
function alike(lines) {
  const groups = new Map();
  for (const line of lines) {
    const kind = line.level + (line.location || "") + line.text.replace(/^.*?\] /, "").replace(/, client: .*/s, "").replace(/[0-9a-f]{32}|\d+/g, "#");
    const group = groups.get(kind);
    if (group) group.count++;
    else groups.set(kind, { ...line, count: 1 });
  }
  return [...groups.values()];
}

function logLine({ level, text, count, request, location }) {
  const grave = ["error", "crit", "alert", "emerg"].includes(level);
  const links = [];
  if (location && location !== "-") links.push(" ", make("a", { href: path("route", location) }, location));
  if (request) links.push(" ", make("a", { href: path("req", request) }, "request"));
  const times = count > 1 ? make("b", {}, count + " × ") : undefined;
  return make("div", { class: grave ? "bad" : undefined }, times, text, ...links);
}

/** What `/metrics` says of the server as a whole, in groups. */
async function counters() {
  const text = await (await get("metrics?of=server")).text();
  const help = new Map();
  const rows = [];
  for (const line of text.split("\n")) {
    const about = /^# HELP (\S+) (.*)$/.exec(line);
    if (about) help.set(about[1], about[2]);
    const found = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (found && found[3] !== "0" && !found[1].endsWith("_bucket")) rows.push(found);
  }
  const columns = [["counter"], ["of"], ["value"], ["", "wide"]];
  return table("counters", columns, rows.map(([, name, labels, value]) =>
    make("tr", {}, ...cells(columns, [name.replace(/^weir_/, "").replaceAll("_", " "), (labels || "").replaceAll('"', ""), value, help.get(name) || ""]))));
}
