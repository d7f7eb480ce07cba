// ---- kept requests --------------------------------------------------------------------------------------------------

const REQUESTS = [["request"], ["status"], ["location", "wide"], ["why kept", "wide"], ["total"], ["run", "wide"], ["wait"], ["at", "wide"]];

function requestTable(requests, located) {
  if (!requests.length) return make("p", { class: "faint" }, "none was retained");
  const columns = REQUESTS.filter(([head]) => located || head !== "location");
  return table("requests", columns, requests.map((request) => requestRow(request, columns, located)));
}

function requestRow({ why, record }, columns, located) {
  const link = make("a", { href: path("req", record.id) }, record.method + " " + record.path);
  const status = make("span", { class: record.status >= 500 ? "bad" : undefined }, String(record.status));
  const location = located ? [make("a", { href: path("route", record.location || "") }, record.location || "-")] : [];
  const values = [link, status, ...location, why.replaceAll("_", " "), time(record.total_ns), time(record.run_ns), time(record.wait_ns), clock(record.unix_ms)];
  return make("tr", {}, ...cells(columns, values));
}

const FIELDS = [
  ["id", "id", "first digits of the id"],
  ["status", "status", "404 or 5xx"],
  ["has", "path", "part of the path"],
  ["location", "location", "location"],
  ["over", "slower than", "20ms"],
  ["age", "in the last", "1m"],
];

/** Retained requests by what is known of them. `said` is a condition as `match` has it. */
async function requests(said = "") {
  const inputs = FIELDS.map(([name, label, hint]) => make("input", { name, placeholder: hint, "aria-label": label, size: "12", list: name === "location" ? "routes" : undefined }));
  for (const input of inputs) {
    const found = new RegExp("(?:^| )" + input.name + '=(?:"([^"]*)"|(\\S+))').exec(said);
    if (found) input.value = found[1] ?? found[2];
  }
  const order = make("select", { "aria-label": "order" }, make("option", { value: "slowest" }, "slowest first"), make("option", { value: "latest" }, "latest first"));
  const result = make("div", {});
  const find = async (event) => {
    if (event) event.preventDefault();
    const words = inputs.filter((input) => input.value.trim()).map((input) => condition(input.name, input.value.trim()));
    result.replaceChildren(make("p", { class: "faint" }, "…"));
    try {
      const found = await askLines("slow", { brief: "1", order: order.value, n: 100, match: words.join(" ") });
      result.replaceChildren(make("p", { class: "faint" }, found.length + " requests" + (found.length === 100 ? ", and perhaps more" : "")), requestTable(found, true));
    } catch (error) {
      if (error.name !== "AbortError") result.replaceChildren(make("p", { class: "bad" }, error.message));
    }
  };
  order.addEventListener("change", () => find());
  const labelled = inputs.map((input) => make("label", {}, input.getAttribute("aria-label") + " ", input));
  const routes = make("datalist", { id: "routes" });
  show(make("h1", {}, "Retained requests"),
    make("p", { class: "faint" }, "Slow and failed requests are retained, the slowest of each location, those that blocked a worker or waited for that, and one in some others."),
    make("form", { class: "bar", submit: find }, ...labelled, order, make("button", {}, "search")), routes, result);
  const known = await ask("top/routes", { every: "0" });
  routes.replaceChildren(...known.map((row) => make("option", { value: row.location })));
  await find();
}

/** A condition as the server reads it. */
function condition(name, value) {
  if (name !== "age") return word(name, value);
  const [, number, unit] = /^([\d.]+)\s*(s|m|h)?$/.exec(value) || [];
  if (!number) throw new Error('"' + value + '" is no time: 30s, 5m or 1h are');
  return "after=" + Math.round(Date.now() - number * { s: 1e3, m: 60e3, h: 3600e3 }[unit || "s"]);
}

// ---- a request ------------------------------------------------------------------------------------------------------

const WAITS = ["queue", "upstream_connect", "upstream_send", "upstream_first_byte", "upstream_body", "client_read", "client_write", "cosocket", "timer",
  "subrequest", "lock", "thread_pool", "resolver", "other"];

/** Its headline, what it waited for, its steps over time, and its tree. */
async function request(id) {
  const { record, tree: found } = await ask("req/" + encodeURIComponent(id));
  const location = record.location || "";
  const parts = { run: record.run_ns, ...record.waits_ns };
  const fall = make("div", {}, "…");
  const story = make("div", { class: "story" });
  show(make("h1", {}, record.method + " " + record.path),
    make("p", {}, record.status + ", " + time(record.total_ns) + " = run " + time(record.run_ns) + " + wait " + time(record.wait_ns) +
      (record.kernel_ns ? ", kernel " + time(record.kernel_ns) + " besides" : "") + ", worker " + record.worker + ", " + new Date(record.unix_ms).toLocaleString()),
    make("div", { class: "kinds" }, ...Object.entries(parts).map(([kind, ns]) => kindOf(kind, ns, record.total_ns))), story,
    make("div", { class: "bar" },
      make("a", { href: path("route", location) }, "location " + location),
      make("a", { href: path("flame", "cpu", location) }, "flame cpu"), make("a", { href: path("flame", "wall", location) }, "flame wall")),
    make("h2", {}, "Over time"), fall, make("h2", {}, "Tree"), tree(found.root, location, 1));
  const over = await ask("req/" + encodeURIComponent(id) + "/spans");
  story.replaceChildren(...over.story.split("\n").map(storyLine), record.status >= 400 ? make("p", { class: "faint" }, WITHOUT_ARGUMENTS) : "");
  fall.replaceChildren(waterfall(over));
}

const WITHOUT_ARGUMENTS = "Arguments of requests are not retained, since they may hold secrets: a log_format with $request_id and $args has them, to be found by this id.";

/** A line of its story, in which the numbers of other requests are links. */
function storyLine(line) {
  const parts = line.split(/\b([0-9a-f]{32})\b/).map((part, at) => (at % 2 ? make("a", { href: path("req", part) }, part) : part));
  return make("p", { class: line.startsWith("kept because") ? "faint" : "bad" }, ...parts);
}

function kindOf(kind, ns, whole) {
  const part = whole ? ns / whole : 0;
  return make("span", { class: "kind" }, make("span", { class: "mark " + kindClass(kind) }), kind + " " + time(ns) + " (" + share(part) + ")");
}

const kindClass = (kind) => (kind === "run" ? "run" : "w-" + (WAITS.includes(kind) ? kind : "other"));

/** A row a step, from its beginning to its end, coloured by what it did: run, or waits by their kind. */
function waterfall({ record, spans, waits, left_out: left, folded }) {
  const whole = Math.max(1, record.total_ns, ...spans.map((span) => span.end_ns));
  const shown = spans.filter(({ kind, start_ns: from, end_ns: to }) => to - from >= whole * 0.004 || ["upstream", "subrequest", "internal_redirect"].includes(kind));
  const rows = shown.slice(0, 80).map((span) => fallRow(span, waits, whole));
  const hidden = spans.length - Math.min(shown.length, 80) + left;
  const marks = [0, 0.25, 0.5, 0.75, 1].map((part) => make("span", {}, time(part * whole)));
  return make("div", { class: "fall" }, make("div", { class: "row head faint" }, make("span", {}), make("div", { class: "axis" }, ...marks)), ...rows,
    hidden > 0 ? make("p", { class: "faint" }, hidden + " steps that took less than 0.4% each are not drawn" + (folded ? "; of this request only the beginning has times" : "")) : undefined);
}

function fallRow(span, waits, whole) {
  const { start_ns: from, end_ns: to } = span;
  const bar = make("div", { class: "line" });
  const piece = (kind, a, b, title) => {
    const part = make("span", { class: kindClass(kind), title });
    part.style.left = (a / whole) * 100 + "%";
    part.style.width = Math.max(0.15, ((b - a) / whole) * 100) + "%";
    bar.append(part);
  };
  piece("run", from, to, called(span, "") + " " + time(to - from));
  const inside = waits.filter((wait) => wait.end_ns > from && wait.start_ns < to);
  // A step with thousands of waits is drawn by the longest.
  const longest = inside.sort((a, b) => b.end_ns - b.start_ns - (a.end_ns - a.start_ns)).slice(0, 200);
  for (const wait of longest) {
    const [a, b] = [Math.max(from, wait.start_ns), Math.min(to, wait.end_ns)];
    piece(wait.kind, a, b, "wait " + wait.kind + " " + time(b - a));
  }
  const name = make("span", { class: "name" }, called(span, ""), make("small", { class: "faint" }, " " + time(to - from)));
  name.style.paddingLeft = span.depth * 0.7 + "em";
  return make("div", { class: "row" }, name, bar);
}

// ---- a tree ---------------------------------------------------------------------------------------------------------

const NODES = [["", ""], ["run"], ["wait"], ["calls", "wide"], ["bytes", "wide"]];

function tree(root, location, requests) {
  const rows = [];
  const whole = Math.max(1, root.run_ns + root.wait_ns);
  const walk = (node, depth, above) => {
    const all = node.run_ns + node.wait_ns;
    if (depth >= 0) rows.push(...treeRow(node, depth, above, all / whole, location, requests));
    for (const child of node.children) walk(child, depth + 1, node.kind);
  };
  walk(root, -1, "request");
  const drawn = table("tree", NODES, rows);
  const empty = rows.filter((row) => row.classList.contains("empty")).length;
  if (!empty) return drawn;
  const all = make("button", { type: "button", click: () => drawn.classList.toggle("all") }, empty + " steps of less than 0.1 µs");
  return make("div", {}, drawn, all);
}

function called(node, above) {
  const own = node.name || node.kind;
  return ["phase", "connection", "handler", "other", above].includes(node.kind) || !node.name ? own : node.kind + " " + own;
}

/** A node's row, and below it one for each kind of waiting of its own. */
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
  const empty = each(node.run_ns + node.wait_ns) < 100 && !node.errors && !bytes;
  const values = [first, time(each(node.run_ns)), wait, each(node.calls).toFixed(requests > 1 ? 2 : 0), bytes];
  const waits = Object.entries(node.waits_ns || {}).filter(([, ns]) => each(ns) >= 100);
  return [make("tr", { class: empty ? "empty" : undefined }, ...cells(NODES, values)), ...waits.map(([kind, ns]) => waitRow(kind, each(ns), depth + 1))];
}

function waitRow(kind, ns, depth) {
  const name = make("div", { class: "faint" }, make("span", { class: "mark " + kindClass(kind) }), "wait " + kind);
  name.style.marginLeft = depth + "em";
  return make("tr", { class: "wait-row" }, ...cells(NODES, [name, "", time(ns), "", ""]));
}
