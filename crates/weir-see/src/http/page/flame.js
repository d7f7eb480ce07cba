// ---- flame graphs ---------------------------------------------------------------------------------------------------

const KINDS = ["cpu", "wall", "wait", "off", "alloc", "gc", "jit"];

/** `shown`: the name of a recording, or nothing for a new one. */
async function flame(kind = "cpu", location = "", shown = "") {
  const pick = (...parts) => (window.location.hash = path("flame", ...parts));
  const chosen = make("select", { "aria-label": "what", change: () => pick(chosen.value, location) }, ...KINDS.map((name) => make("option", { selected: name === kind }, name)));
  const search = make("input", { type: "search", placeholder: "search", "aria-label": "search" });
  const found = make("span", { class: "faint" });
  const seconds = make("select", { "aria-label": "seconds" }, ...[3, 10, 30].map((number) => make("option", { value: number }, number + " s")));
  const again = make("button", { type: "button", click: () => record().catch(failed) }, "record");
  const form = make("select", { "aria-label": "form" }, ...["callees", "callers"].map((name) => make("option", { value: name }, name)));
  const server = make("input", { type: "checkbox" });
  const before = make("select", { "aria-label": "compared with" });
  const saved = make("span", { class: "faint" });
  const about = make("p", { class: "faint", id: "recorded" });
  const drawing = make("div", { class: "flame" });
  const detail = make("div", { id: "detail", class: "faint" }, "recording…");
  const list = make("div", {});
  const kept = new RecordingList((one) => pick(one.kind, one.location, one.id));
  kept.takes(drawing);
  show(make("h1", {}, "Flame graph " + (location && "of " + location)),
    make("div", { class: "bar" }, chosen, seconds, again, form, make("label", {}, server, " runtime's frames"), make("label", {}, "less ", before), search, found, saved),
    about, drawing, detail, kept.element, make("h2", {}, "Functions"), list);
  let graph, one, other;
  const redraw = () => {
    if (!one) return;
    const prepared = (stacks) => stacks.map((stack) => ({ ...stack, frames: server.checked ? stack.frames : foldRuntime(stack.frames) }));
    const view = { inverted: form.value === "callers", before: other && prepared(other.stacks.stacks) };
    graph = new Flame({ ...one.stacks, stacks: prepared(one.stacks.stacks) }, drawing, detail, view);
    about.textContent = aboutRecording(one);
    found.textContent = graph.find(search.value);
    list.replaceChildren(functions(graph, (name) => sandwich(graph, name, detail)));
  };
  const record = async () => {
    again.disabled = true;
    try {
      detail.textContent = "recording " + seconds.value + " seconds…";
      await open(await recordNow(kind, location, seconds.value));
    } finally {
      again.disabled = false;
    }
  };
  /** Shows a recording, and has the address lead to it. */
  const open = async (id) => {
    one = await recordingOf(id);
    history.replaceState(undefined, "", path("flame", kind, location, id));
    const link = one.file ? one.file + " " : make("a", { href: path("flame", kind, location, id), title: "a link that others can open, too" }, "recording " + id.slice(0, 8));
    saved.replaceChildren(link, " ", make("button", { type: "button", click: () => saveRecording(one) }, "save"));
    await options();
    redraw();
  };
  /** Those of the same kind, of this tab and of the server, to subtract. */
  const options = async () => {
    const all = new Map((await ask("recordings")).map((row) => [row.id, { kind: row.kind, location: row.location, at: row.unix_ms }]));
    for (const [id, known] of recordings) if (known.file) all.set(id, known);
    const of = (known) => (known.file || known.kind + " " + (known.location || "all")) + " at " + clock(known.at);
    const alike = [...all].filter(([id, known]) => known.kind === kind && id !== one.id);
    const chosen = before.value;
    before.replaceChildren(make("option", { value: "" }, "nothing"), ...alike.map(([id, known]) => make("option", { value: id, selected: id === chosen && "" }, of(known))));
  };
  const compare = async () => {
    other = before.value ? await recordingOf(before.value) : undefined;
    redraw();
  };
  search.addEventListener("input", () => graph && (found.textContent = graph.find(search.value)));
  [form, server].forEach((input) => input.addEventListener("change", redraw));
  before.addEventListener("change", () => compare().catch(failed));
  // The last one of these stays until another is asked for.
  const last = [...recordings.values()].findLast((known) => known.kind === kind && known.location === location && !known.file);
  const gone = (error) => {
    detail.textContent = "“record” makes a new one";
    throw error;
  };
  if (shown) return open(shown).catch(gone);
  if (last) return open(last.id);
  return record();
}

/** How much a recording is made of, and when. */
function aboutRecording({ stacks, kind, at }) {
  const count = sum(stacks.stacks.map((stack) => stack.count));
  const what = stacks.period_ns || kind === "alloc" ? "samples" : "times measured";
  return count + " " + what + " in " + time(stacks.duration_ns) + ", until " + clock(at) + (count && count < FEW_SAMPLES && stacks.period_ns ? "; shares of so few are rough" : "");
}
const FEW_SAMPLES = 50;

/** The frames of the runtime, between a request's module and its code, as one. */
function foldRuntime(frames) {
  const hidden = frames.filter((frame) => frame.runtime);
  if (hidden.length < 2) return frames;
  const first = frames.indexOf(hidden[0]);
  return [...frames.slice(0, first), { name: "server", origin: "native" }, ...frames.slice(first + hidden.length)];
}

/** Stacks merged from the outermost frame on (or from the innermost), and drawn: each frame as wide as its share. */
class Flame {
  constructor(stacks, drawing, detail, { inverted = false, before } = {}) {
    this.unit = stacks.kind === "alloc" ? bytes : time;
    this.inverted = inverted;
    this.compared = before !== undefined;
    this.root = node({ name: "all", origin: "all" });
    for (const stack of stacks.stacks) this.add(stack, "value");
    for (const stack of before || []) this.add(stack, "old");
    this.drawing = drawing;
    this.detail = detail;
    this.word = "";
    if (this.root.value === 0 && this.root.old === 0) {
      drawing.replaceChildren();
      detail.textContent = "nothing was recorded: no requests came";
    } else this.zoom(this.root);
  }

  add(stack, key) {
    const value = stack.value_ns ?? stack.value_bytes;
    let at = this.root;
    at[key] += value;
    const frames = this.inverted ? stack.frames.slice().reverse() : stack.frames;
    for (const frame of frames) {
      const name = frame.origin + " " + frame.name + ":" + (frame.line || 0);
      if (!at.children.has(name)) at.children.set(name, node(frame, at));
      at = at.children.get(name);
      at[key] += value;
    }
    if (key === "value") at.own += value;
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

  /** Frames that only the recording before has are as wide as they were there. */
  size(node) {
    return Math.max(node.value, this.compared ? node.old * this.scale() : 0);
  }

  /** What the other recording's values are multiplied with: it may be of another length. */
  scale() {
    return this.root.old ? (this.root.value || this.root.old) / this.root.old : 1;
  }

  below(node, from, width) {
    if (width < 0.0008 || this.boxes.length > 4000) return;
    this.box(node, from, width, false);
    const children = [...node.children.values()].sort((a, b) => this.size(b) - this.size(a));
    const inside = children.map((child) => this.size(child));
    const whole = Math.max(this.size(node), sum(inside));
    let at = from;
    children.forEach((child, number) => {
      const part = (width * inside[number]) / whole;
      this.below(child, at, part);
      at += part;
    });
  }

  box(node, from, width, around) {
    const box = make("div", { class: node.frame.origin + (around ? " around" : ""), title: this.words(node), click: () => this.zoom(node) }, node.frame.name || "-");
    box.style.left = (from * 100).toFixed(3) + "%";
    box.style.width = (width * 100).toFixed(3) + "%";
    if (this.compared) box.style.background = this.colour(node);
    this.rows = Math.max(this.rows, node.depth);
    this.boxes.push([box, node]);
  }

  /** Red for what takes a larger share than before, blue for a smaller one. */
  colour(node) {
    const change = this.change(node);
    const strength = Math.min(1, Math.abs(change) * 4);
    return "hsl(" + (change > 0 ? 5 : 215) + " " + (strength * 75).toFixed(0) + "% " + (88 - strength * 22).toFixed(0) + "%)";
  }

  /** Share of all now, less that before. */
  change(node) {
    return node.value / Math.max(1, this.root.value) - node.old / Math.max(1, this.root.old);
  }

  words(node) {
    const own = node.own && !this.inverted ? ", own " + this.unit(node.own) : "";
    const change = this.change(node);
    const before = this.compared ? ", " + (change > 0 ? "+" : "") + share(change) + " to the other" : "";
    return node.frame.name + " (" + this.unit(node.value) + ", " + share(node.value / Math.max(1, this.root.value)) + own + before + ")";
  }

  /** What the frame is, and where it comes from: the line of a script, or that of the configuration. */
  async tell(node) {
    const { frame } = node;
    const parts = [make("div", {}, this.words(node))];
    const script = frame.origin === "lua" && luaPlace(frame.name);
    if (script) parts.push(make("div", { class: "lines" }, place(script.file, script.line)));
    else if (frame.file) parts.push(make("div", { class: "faint" }, frame.file + ":" + frame.line));
    if (node.above) parts.push(make("button", { type: "button", click: () => sandwich(this, frame.name, this.detail) }, "callers and callees"));
    this.detail.replaceChildren(...parts);
    const path = [];
    for (let at = node; at.above; at = at.above) path.unshift(at.frame);
    if (this.inverted) path.reverse();
    const by = path.findLast((frame) => frame.origin === "module");
    if (!path.length || path[0].origin !== "route" || path[0].name.startsWith("(")) return;
    const found = await lines(path[0].name, by ? by.name.split(" ").pop() : "");
    if (this.at === node) this.detail.append(found);
  }

  find(word) {
    this.word = word.toLowerCase();
    this.mark();
    if (!word) return "";
    const within = (node) => (this.isFound(node) ? node.value : [...node.children.values()].reduce((all, child) => all + within(child), 0));
    return share(within(this.root) / Math.max(1, this.root.value));
  }

  isFound(node) {
    return this.word !== "" && node.frame.name.toLowerCase().includes(this.word);
  }

  mark() {
    for (const [box, node] of this.boxes || []) box.classList.toggle("found", this.isFound(node));
  }
}

function node(frame, above) {
  return { frame, above, depth: above ? above.depth + 1 : 0, value: 0, old: 0, own: 0, children: new Map() };
}

/** Every node of a graph, outermost first. */
function* nodes(at) {
  yield at;
  for (const child of at.children.values()) yield* nodes(child);
}

/** Functions by their own time; each leads to its callers and callees. */
function functions(graph, open) {
  const all = new Map();
  for (const at of nodes(graph.root)) {
    if (!at.above) continue;
    const own = graph.inverted ? (at.depth === 1 ? at.value : 0) : at.own;
    const row = all.get(at.frame.name) || { name: at.frame.name, own: 0, whole: 0 };
    all.set(at.frame.name, row);
    row.own += own;
    let inside = false;
    for (let above = at.above; above; above = above.above) inside ||= above.frame.name === at.frame.name;
    if (!inside) row.whole += at.value;
  }
  const columns = [["function"], ["own"], ["", "wide"], ["with what it called"], ["", "wide"]];
  const rows = [...all.values()].sort((a, b) => b.own - a.own || b.whole - a.whole).slice(0, 30);
  const part = (value) => share(value / Math.max(1, graph.root.value));
  return table("functions", columns, rows.map((row) => make("tr", {}, ...cells(columns,
    [make("button", { class: "name", type: "button", click: () => open(row.name) }, row.name), graph.unit(row.own), part(row.own), graph.unit(row.whole), part(row.whole)]))));
}

/** A function between those that called it and those that it called. */
function sandwich(graph, name, detail) {
  const callers = new Map();
  const callees = new Map();
  const add = (to, name, value) => to.set(name, (to.get(name) || 0) + value);
  let whole = 0;
  for (const at of nodes(graph.root)) {
    if (at.frame.name !== name) continue;
    const [above, below] = graph.inverted ? [callees, callers] : [callers, callees];
    if (at.above) add(above, at.above.above ? at.above.frame.name : "(outermost)", at.value);
    for (const child of at.children.values()) add(below, child.frame.name, child.value);
    whole += at.value;
  }
  const half = (title, of) => {
    const rows = [...of].sort((a, b) => b[1] - a[1]).slice(0, 12);
    const columns = [[title], [""], ["", "wide"]];
    const go = (next) => make("button", { class: "name", type: "button", click: () => sandwich(graph, next, detail) }, next);
    return table("functions", columns, rows.map(([next, value]) => make("tr", {}, ...cells(columns, [go(next), graph.unit(value), share(value / Math.max(1, whole))]))));
  };
  detail.replaceChildren(make("div", { class: "sandwich" }, half("called by", callers), make("strong", {}, name + ", " + graph.unit(whole)), half("calls", callees)));
}
