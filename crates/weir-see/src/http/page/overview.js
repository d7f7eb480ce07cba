// ---- all locations --------------------------------------------------------------------------------------------------

const LOCATIONS = [
  { head: "location", begin: (row) => make("a", { href: path("route", row.key) }, row.key) },
  figure("req/s", (row) => rate(row.rate)),
  sparkColumn("", "rate", (row) => row.rates, { wide: "wide" }),
  figure("4xx", (row) => share(row.share4xx), { kind: "wide" }),
  figure("5xx", (row) => share(row.share5xx), { isBad: (row) => row.share5xx > 0 }),
  figure("p50", (row) => time(row.p50), { kind: "wide" }),
  figure("p99", (row) => time(row.p99)),
  sparkColumn("", "late", (row) => row.p99s, { wide: "wide" }),
  figure("run", (row) => time(row.run)),
  figure("wait", (row) => time(row.wait)),
];

/** The figures of a series for a row of a table. */
function trafficRow(series, history, most) {
  const requests = sum(series.requests);
  const recent = Math.min(5, series.requests.length);
  const lately = sum(series.requests.slice(-recent)) / Math.max(1e-9, sum(history.lengths_ns.slice(-recent)) / 1e9);
  return {
    key: series.name,
    points: most,
    rate: history.span === "minute" ? lately : requests / Math.max(1e-9, sum(history.lengths_ns) / 1e9),
    requests,
    rates: perSecond(series.requests, history.lengths_ns),
    p99s: series.p99_ns.map((value, at) => (series.requests[at] ? value : null)),
    share4xx: requests ? sum(series.errors_4xx) / requests : null,
    share5xx: requests ? sum(series.errors_5xx) / requests : null,
    p50: weighted(series, "p50_ns"),
    p99: weighted(series, "p99_ns"),
    run: weighted(series, "run_ns"),
    wait: weighted(series, "wait_ns"),
  };
}

/** The sums of all series at each point, those without a place of their own included. */
function together(kind, key) {
  const first = kind.series.map((series) => series[key]);
  const rest = kind["folded_" + key] || [];
  return rest.map((value, at) => first.reduce((all, values) => all + (values[at] || 0), value || 0));
}

/** Times of all requests at each point, out of the counts of bins: the upper bound of the bin that `q` is in. */
function quantiles(history, q) {
  const bounds = history.bins_ns;
  return history.heat.map((column) => {
    const count = sum(column || []);
    if (!count) return null;
    let seen = 0;
    const bin = column.findIndex((value) => (seen += value) >= q * count);
    return bounds[Math.min(bin, bounds.length - 1)];
  });
}

async function overview() {
  const history = new HistoryFeed(span(), { heat: "" });
  const findings = new Findings();
  const [rates, late, failed] = [
    new Chart("requests a second", [{ name: "all", kind: "rate" }], rate),
    new Chart("latency", [{ name: "p50", kind: "middle" }, { name: "p99", kind: "late" }], time),
    new Chart("errors a second", [{ name: "4xx", kind: "client" }, { name: "5xx", kind: "error" }], rate),
  ];
  const busy = new Chart("workers busy", [{ name: "mean", kind: "rate" }, { name: "busiest", kind: "late" }], share);
  const chosen = make("div", {});
  const heat = new HeatMap("latency of all requests; draw around a part to see its requests", (part) => brushed(chosen, part));
  const all = new LiveTable("routes", LOCATIONS);
  const folded = make("p", { class: "faint" });
  show(make("div", { class: "bar" }, make("h1", {}, "Overview"), spans(history.span)), findings.element,
    make("div", { class: "charts" }, rates.element, late.element, failed.element, busy.element), heat.element, chosen,
    make("h2", {}, "Locations"), all.element, folded);
  const idle = (await ask("top/routes", { every: "0" })).map((row) => row.location);
  const drawn = follow(async () => {
    const known = await history.load();
    const { locations, lengths_ns: lengths } = known;
    rates.update([perSecond(together(locations, "requests"), lengths)], known);
    late.update([quantiles(known, 0.5), quantiles(known, 0.99)], known);
    failed.update([perSecond(together(locations, "errors_4xx"), lengths), perSecond(together(locations, "errors_5xx"), lengths)], known);
    busy.update(busyOf(known), known);
    heat.update(known);
    all.update(locationRows(known, idle));
    folded.textContent = locations.folded ? locations.folded + " more locations are in the sums only: " + sum(locations.folded_requests) + " requests" : "";
  });
  await Promise.all([findings.follow(), drawn]);
}

function busyOf({ workers, ends_unix_ms: ends }) {
  const at = ends.map((_, at) => workers.map((worker) => worker.busy[at]).filter((busy) => busy !== null));
  return [at.map((values) => (values.length ? sum(values) / values.length : null)), at.map((values) => (values.length ? Math.max(...values) : null))];
}

/** Those with requests first; those that had some once after them. */
function locationRows(known, idle) {
  const rows = known.locations.series.map((series) => trafficRow(series, known, known.points));
  rows.sort((a, b) => b.requests - a.requests || (a.key < b.key ? -1 : 1));
  const shown = new Set(rows.map((row) => row.key));
  const none = { points: known.points, rates: [], p99s: [], rate: 0, share4xx: null, share5xx: null, p50: null, p99: null, run: null, wait: null };
  return rows.concat(idle.filter((name) => !shown.has(name)).slice(0, 200).map((key) => ({ key, ...none })));
}

/** Shows the kept requests inside a part of a heat map. */
async function brushed(shown, part, location) {
  const { after, before, over, under } = part;
  const words = [location && ofLocation(location), "after=" + after, "before=" + before, over && "over=" + over + "ns", under && "under=" + under + "ns"];
  const range = time(over || 0) + (under ? " to " + time(under) : " and more") + ", " + clock(after) + " to " + clock(before);
  shown.replaceChildren(make("p", { class: "faint" }, "…"));
  try {
    const found = await askLines("slow", { brief: "1", order: "slowest", n: 50, match: words.filter(Boolean).join(" ") });
    shown.replaceChildren(make("h2", {}, "Retained requests, " + range), requestTable(found, !location));
  } catch (error) {
    shown.replaceChildren(make("p", { class: "bad" }, error.message));
  }
}

// ---- a location -----------------------------------------------------------------------------------------------------

async function route(location) {
  const history = new HistoryFeed(span(), { heat: location });
  const rates = new Chart("requests a second", [{ name: "all", kind: "rate" }, { name: "4xx", kind: "client" }, { name: "5xx", kind: "error" }], rate);
  const late = new Chart("latency", [{ name: "p50", kind: "middle" }, { name: "p99", kind: "late" }], time);
  const parts = new Chart("mean of a request", [{ name: "run", kind: "run" }, { name: "wait", kind: "wait" }], time);
  const chosen = make("div", {});
  const heat = new HeatMap("latency; draw around a part to see its requests", (part) => brushed(chosen, part, location));
  const average = make("div", {}, make("p", { class: "faint" }, "waiting for requests…"));
  const kept = make("div", {});
  const links = ["cpu", "wall", "wait", "off"].map((kind) => make("a", { href: path("flame", kind, location) }, "flame " + kind));
  const more = [make("a", { href: path("compare", ofLocation(location)) }, "compare"), make("a", { href: path("requests", ofLocation(location)) }, "requests")];
  show(make("h1", {}, location), make("div", { class: "bar" }, spans(history.span), ...links, ...more), await lines(location, ""),
    make("div", { class: "charts" }, rates.element, late.element, parts.element), heat.element, chosen,
    make("h2", {}, "Average"), average, make("h2", {}, "Retained requests"), kept);
  const drawn = follow(async () => {
    const known = await history.load();
    heat.update(known);
    const series = known.locations.series.find((series) => series.name === location);
    if (!series) return;
    const of = (key) => series[key].map((value, at) => (series.requests[at] ? value : null));
    rates.update(["requests", "errors_4xx", "errors_5xx"].map((key) => perSecond(series[key], known.lengths_ns)), known);
    late.update([of("p50_ns"), of("p99_ns")], known);
    parts.update([of("run_ns"), of("wait_ns")], known);
  });
  await Promise.all([drawn, fillLocation(location, kept, average)]);
}

/** The retained requests of a location, and the mean of those to come. */
async function fillLocation(location, kept, average) {
  const requests = await askLines("slow", { brief: "1", n: 15, match: ofLocation(location) });
  kept.replaceChildren(requestTable(requests, false));
  const mean = await ask("trace/avg", { n: 200, for: "3s", match: ofLocation(location) });
  if (mean.requests === 0) average.replaceChildren("no request came in three seconds");
  else average.replaceChildren(make("p", {}, mean.requests + " requests"), tree(mean.root, location, mean.requests));
}
