// ---- figures over time ----------------------------------------------------------------------------------------------

/** The history of the server, a second at a time: only what is new is asked for. */
class HistoryFeed {
  /** `values` are more arguments: `heat` for latencies bin by bin. */
  constructor(span, values) {
    this.span = span;
    this.values = values;
    this.known = undefined;
    this.silent = 0;
  }

  async load() {
    const ends = this.known ? this.known.ends_unix_ms : [];
    const since = ends.length ? ends[ends.length - 1] : 0;
    const news = await ask("history", { span: this.span, since, ...this.values });
    this.known = this.known ? joined(this.known, news) : news;
    // Nothing new for long: the server's clock was set back, and what is new is older than what is known.
    this.silent = news.ends_unix_ms.length ? 0 : this.silent + 1;
    if (this.silent > (news.step_ns / 1e9) * 2 + 5) this.known = undefined;
    return this.known || news;
  }
}

/** Two parts of a history, of which the first may lack series, and the second points. */
function joined(before, news) {
  const count = news.ends_unix_ms.length;
  const drop = Math.max(0, before.ends_unix_ms.length + count - news.points);
  const add = (old, more) => old.concat(more).slice(drop);
  const absent = (length) => new Array(length).fill(null);
  const series = (all, more, name) => {
    const old = new Map(all.map((one) => [one[name], one]));
    return more.map((one) => {
      const was = old.get(one[name]);
      const pairs = Object.entries(one).map(([key, values]) =>
        Array.isArray(values) ? [key, add(was ? was[key] : absent(before.ends_unix_ms.length), values)] : [key, values]);
      return Object.fromEntries(pairs);
    });
  };
  const kind = (key) => {
    const pairs = Object.entries(news[key]).map(([name, values]) =>
      name === "series" ? [name, series(before[key].series, values, "name")] : [name, Array.isArray(values) ? add(before[key][name], values) : values]);
    return Object.fromEntries(pairs);
  };
  return {
    ...news,
    ends_unix_ms: add(before.ends_unix_ms, news.ends_unix_ms),
    lengths_ns: add(before.lengths_ns, news.lengths_ns),
    locations: kind("locations"),
    upstreams: kind("upstreams"),
    workers: series(before.workers, news.workers, "worker"),
    heat: news.heat && add(before.heat || absent(before.ends_unix_ms.length), news.heat),
  };
}

/** Values a second. */
const perSecond = (values, lengths) => values.map((value, at) => (value === null ? null : value / (lengths[at] / 1e9)));

/** The mean of `key` over the requests of a series; of none `null`. */
function weighted(series, key) {
  const requests = sum(series.requests);
  return requests ? sum(series.requests.map((count, at) => (count || 0) * (series[key][at] || 0))) / requests : null;
}

/** The path of a line through values from the left to the right of a box, with gaps where there are none. */
function linePath(values, points, width, height, top) {
  const step = width / Math.max(1, points - 1);
  const first = points - values.length;
  let pen = "M";
  let path = "";
  values.forEach((value, at) => {
    if (value === null || value === undefined) return void (pen = "M");
    const y = height - (Math.min(value, top) / (top || 1)) * (height - 2) - 1;
    path += pen + ((first + at) * step).toFixed(1) + " " + y.toFixed(1);
    pen = "L";
  });
  return path;
}

/** A line as small as a word. */
function spark(kind) {
  const line = draw("path", { class: "line " + kind });
  const element = draw("svg", { class: "spark", viewBox: "0 0 120 24", preserveAspectRatio: "none", "aria-hidden": "true" }, line);
  return {
    element,
    update(values, points, top) {
      line.setAttribute("d", linePath(values, points, 120, 24, top || Math.max(1e-9, ...values.map((value) => value || 0))));
    },
  };
}

/** A column with a line over time. */
function sparkColumn(head, kind, values, { wide, top } = {}) {
  return {
    head,
    kind: wide,
    begin() {
      this.last = spark(kind);
      return this.last.element;
    },
    update(cell, row) {
      cell.line = cell.line || this.last;
      cell.line.update(values(row), row.points, top);
    },
  };
}

/** Lines over time under a title, with the figures at the right end or under the pointer. `lines`: name, colour class. */
class Chart {
  constructor(title, lines, text) {
    this.text = text;
    this.lines = lines.map(({ name, kind }) => ({ name, kind, path: draw("path", { class: "line " + kind }), values: [] }));
    this.cursor = draw("path", { class: "cursor" });
    this.drawing = draw("svg", { viewBox: "0 0 600 120", preserveAspectRatio: "none", role: "img", "aria-label": title }, ...this.lines.map(({ path }) => path), this.cursor);
    this.top = make("span", { class: "top faint" });
    this.legend = make("div", { class: "legend" });
    const from = make("span", {});
    this.when = make("span", {});
    this.from = from;
    this.element = make("figure", { class: "chart" }, make("figcaption", {}, make("strong", {}, title), this.legend),
      make("div", { class: "plot" }, this.drawing, this.top), make("div", { class: "axis faint" }, from, this.when));
    this.marks = this.lines.map(({ name, kind }) => {
      const value = make("span", {});
      this.legend.append(make("span", { class: "mark " + kind }), name + " ", value, " ");
      return value;
    });
    this.drawing.addEventListener("pointermove", (event) => this.point(event));
    this.drawing.addEventListener("pointerleave", () => this.point(undefined));
  }

  /** `values` in the order of the lines. */
  update(values, history) {
    this.history = history;
    const all = values.flat().filter((value) => value !== null);
    const top = Math.max(1e-9, ...all);
    this.top.textContent = all.length ? this.text(top) : "";
    this.lines.forEach((line, at) => {
      line.values = values[at];
      line.path.setAttribute("d", linePath(values[at], history.points, 600, 120, top));
    });
    const ends = history.ends_unix_ms;
    if (ends.length) this.from.textContent = clock(ends[ends.length - 1] - (history.points * history.step_ns) / 1e6);
    this.read();
  }

  point(event) {
    const box = this.drawing.getBoundingClientRect();
    this.at = event && box.width ? (event.clientX - box.left) / box.width : undefined;
    this.read();
  }

  /** Shows the figures of the moment that is pointed at. */
  read() {
    if (!this.history) return;
    const { points, ends_unix_ms: ends } = this.history;
    const from = points - ends.length;
    const at = this.at === undefined ? ends.length - 1 : Math.min(ends.length - 1, Math.round(this.at * (points - 1)) - from);
    this.lines.forEach((line, number) => {
      const value = line.values[at];
      this.marks[number].textContent = value === null || value === undefined ? "-" : this.text(value);
    });
    this.when.textContent = ends[at] ? (this.at === undefined ? "now" : clock(ends[at])) : "";
    this.cursor.setAttribute("d", this.at === undefined ? "" : "M" + this.at * 600 + " 0V120");
  }
}

/** How many requests took how long when: columns of time, rows of latency. A part that is drawn around calls `chosen`. */
class HeatMap {
  constructor(title, chosen) {
    this.chosen = chosen;
    this.canvas = make("canvas", { role: "img", "aria-label": title });
    this.frame = make("div", { class: "brush" });
    this.readout = make("span", { class: "faint" });
    this.scale = make("div", { class: "scale faint" });
    this.plot = make("div", { class: "plot heat" }, this.canvas, this.frame, this.scale);
    this.from = make("span", {});
    this.element = make("figure", { class: "chart" }, make("figcaption", {}, make("strong", {}, title), this.readout), this.plot,
      make("div", { class: "axis faint" }, this.from, make("span", {}, "now")));
    this.canvas.addEventListener("pointerdown", (event) => this.begin(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerup", (event) => this.end(event));
    this.canvas.addEventListener("pointercancel", () => (this.start = undefined));
  }

  update(history) {
    this.history = history;
    const { points, heat, bins_ns: bounds } = history;
    const used = heat.flatMap((column) => (column || []).flatMap((count, bin) => (count ? [bin] : [])));
    this.low = used.length ? Math.max(0, used.reduce((a, b) => Math.min(a, b)) - 1) : 5;
    this.high = used.length ? Math.max(this.low + 5, Math.min(bounds.length, used.reduce((a, b) => Math.max(a, b)) + 1)) : 17;
    const rows = this.high - this.low + 1;
    if (this.canvas.width !== points || this.canvas.height !== rows) Object.assign(this.canvas, { width: points, height: rows });
    this.paint(points, rows, heat);
    const step = Math.max(1, Math.round(rows / 6));
    const marks = [];
    for (let bin = this.low; bin < this.high; bin += step) {
      const mark = make("span", {}, short(bounds[bin]));
      mark.style.bottom = ((bin - this.low + 1) / rows) * 100 + "%";
      marks.push(mark);
    }
    this.scale.replaceChildren(...marks);
    const ends = history.ends_unix_ms;
    if (ends.length) this.from.textContent = clock(ends[ends.length - 1] - (points * history.step_ns) / 1e6);
  }

  paint(points, rows, heat) {
    const style = getComputedStyle(document.documentElement);
    const [red, green, blue] = style.getPropertyValue("--heat").split(",").map(Number);
    const pen = this.canvas.getContext("2d");
    const image = pen.createImageData(points, rows);
    const most = heat.reduce((most, column) => (column || []).reduce((a, b) => Math.max(a, b), most), 1);
    heat.forEach((column, at) => {
      for (let bin = this.low; column && bin <= this.high; bin += 1) {
        if (!column[bin]) continue;
        const pixel = ((rows - 1 - (bin - this.low)) * points + at + points - heat.length) * 4;
        const strength = 0.25 + 0.75 * (Math.log(1 + column[bin]) / Math.log(1 + most));
        image.data.set([red, green, blue, 255 * strength], pixel);
      }
    });
    pen.putImageData(image, 0, 0);
  }

  /** The place of a pointer: 0 to 1 from the left, and from below. */
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const inside = (value) => Math.min(1, Math.max(0, value));
    return { x: inside((event.clientX - box.left) / box.width), y: inside(1 - (event.clientY - box.top) / box.height) };
  }

  begin(event) {
    this.start = this.at(event);
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    const at = this.at(event);
    this.tell(at);
    if (this.start) this.outline(this.start, at);
  }

  end(event) {
    if (!this.start || !this.history) return;
    const at = this.at(event);
    const rows = this.canvas.height;
    const points = this.canvas.width;
    // A click means the place around it.
    const pad = (a, b, size) => (Math.abs(a - b) * size < 1 ? 1.5 / size : 0);
    const [padX, padY] = [pad(at.x, this.start.x, points), pad(at.y, this.start.y, rows)];
    const from = { x: Math.max(0, Math.min(at.x, this.start.x) - padX), y: Math.max(0, Math.min(at.y, this.start.y) - padY) };
    const to = { x: Math.min(1, Math.max(at.x, this.start.x) + padX), y: Math.min(1, Math.max(at.y, this.start.y) + padY) };
    this.start = undefined;
    this.outline(from, to);
    this.chosen(this.meant(from, to));
  }

  outline(a, b) {
    const { style } = this.frame;
    style.left = Math.min(a.x, b.x) * 100 + "%";
    style.width = Math.abs(a.x - b.x) * 100 + "%";
    style.bottom = Math.min(a.y, b.y) * 100 + "%";
    style.height = Math.abs(a.y - b.y) * 100 + "%";
  }

  /** The times and latencies inside: bins as a whole. */
  meant(from, to) {
    const { bins_ns: bounds, ends_unix_ms: ends, points, step_ns: step } = this.history;
    const last = ends[ends.length - 1] || Date.now();
    const moment = (x) => Math.round(last - (1 - x) * points * (step / 1e6));
    const rows = this.canvas.height;
    const low = this.low + Math.floor(from.y * rows);
    const high = this.low + Math.ceil(to.y * rows) - 1;
    return { after: moment(from.x), before: moment(to.x), over: low > 0 ? bounds[low - 1] : 0, under: high < bounds.length ? bounds[high] : undefined };
  }

  tell({ x, y }) {
    if (!this.history || !this.history.heat.length) return;
    const { heat, bins_ns: bounds, ends_unix_ms: ends, points } = this.history;
    const at = Math.floor(x * points) - (points - heat.length);
    const bin = this.low + Math.min(this.canvas.height - 1, Math.floor(y * this.canvas.height));
    const count = heat[at] && heat[at][bin];
    const range = (bin > 0 ? short(bounds[bin - 1]) : "0") + " to " + (bin < bounds.length ? short(bounds[bin]) : "∞");
    this.readout.textContent = count === undefined || count === null ? "" : clock(ends[at]) + ", " + range + ": " + count + " requests";
  }
}

/** A time without decimals: the bounds of bins. */
function short(ns) {
  if (ns < 1e6) return Math.round(ns / 1e3) + " µs";
  return ns < 1e9 ? Math.round(ns / 1e6) + " ms" : (ns / 1e9).toFixed(0) + " s";
}

/** The two spans to choose from; `again` begins the view again with the chosen one. */
function spans(chosen) {
  const choose = (span) => () => {
    sessionStorage.setItem("span", span);
    start();
  };
  const one = (span) => make("button", { type: "button", class: span === chosen ? "here" : undefined, click: choose(span) }, span);
  return make("span", { class: "choice" }, one("minute"), one("hour"));
}

const span = () => (sessionStorage.getItem("span") === "hour" ? "hour" : "minute");
