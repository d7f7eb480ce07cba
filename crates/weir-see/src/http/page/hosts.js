// ---- several servers ------------------------------------------------------------------------------------------------

const ofHost = (name) => path("hosts", name);
const count = (value) => (value === null || value === undefined ? "-" : String(value));
const bad5xx = { isBad: (row) => row.share_5xx > 0 };

const HOSTS = [
  { head: "host", begin: (row) => make("a", { href: ofHost(row.host) }, row.host) },
  figure("state", (row) => row.state, { isBad: (row) => row.state === "silent" }),
  figure("req/s", (row) => rate(row.requests_per_second)),
  figure("4xx", (row) => share(row.share_4xx), { kind: "wide" }),
  figure("5xx", (row) => share(row.share_5xx), bad5xx),
  figure("p50", (row) => time(row.p50_ns), { kind: "wide" }),
  figure("p99", (row) => time(row.p99_ns)),
  figure("cpu", (row) => share(row.share_of_a_core)),
  figure("out/s", (row) => bytes(row.bytes_out_per_second), { kind: "wide" }),
  figure("conns", (row) => count(row.connections), { kind: "wide" }),
  figure("in flight", (row) => count(row.requests_in_flight), { kind: "wide" }),
  figure("up for", (row) => (row.uptime_seconds === null ? "-" : lasted(row.uptime_seconds)), { kind: "wide" }),
  figure("version", (row) => row.version ?? "-", { kind: "wide" }),
  figure("", (row) => row.says, { kind: "says" }),
];

const HOST_LOCATIONS = [
  figure("location", (row) => row.location),
  figure("hosts", (row) => count(row.hosts)),
  figure("req/s", (row) => rate(row.requests_per_second)),
  figure("4xx", (row) => share(row.share_4xx), { kind: "wide" }),
  figure("5xx", (row) => share(row.share_5xx), bad5xx),
  figure("p50", (row) => time(row.p50_ns), { kind: "wide" }),
  figure("p99", (row) => time(row.p99_ns)),
  figure("run", (row) => time(row.run_ns)),
  figure("wait", (row) => time(row.wait_ns)),
];

const HOST_PEERS = [
  figure("peer", (row) => row.peer),
  figure("tries/s", (row) => rate(row.tries_per_second)),
  figure("failed", (row) => share(row.share_failed), { isBad: (row) => row.share_failed > 0 }),
  figure("refused", (row) => count(row.refused), { isBad: (row) => row.refused > 0 }),
  figure("reset", (row) => count(row.reset), { isBad: (row) => row.reset > 0 }),
  figure("repeated", (row) => count(row.repeated), { kind: "wide" }),
  figure("p50", (row) => time(row.wait_p50_ns), { kind: "wide" }),
  figure("p99", (row) => time(row.wait_p99_ns)),
];

const HOST_WORKERS = [
  figure("host", (row) => row.host),
  figure("worker", (row) => count(row.worker)),
  figure("busy", (row) => share(row.share_busy), { isBad: (row) => row.share_busy > 0.9 }),
  figure("cpu", (row) => share(row.share_cpu)),
  figure("req/s", (row) => rate(row.requests_per_second)),
  figure("conns", (row) => count(row.connections), { kind: "wide" }),
  figure("in flight", (row) => count(row.requests_in_flight), { kind: "wide" }),
  figure("blocked", (row) => count(row.stalls), { isBad: (row) => row.stalls > 0 }),
];

const lasted = (seconds) =>
  seconds < 120 ? seconds + " s" : seconds < 7200 ? Math.floor(seconds / 60) + " min" : seconds < 172800 ? Math.floor(seconds / 3600) + " h" : Math.floor(seconds / 86400) + " d";

/** Chooses a host; the names are known when there is a response. */
class HostChoice {
  constructor(chosen) {
    this.chosen = chosen;
    const go = () => (window.location.hash = this.element.value ? ofHost(this.element.value) : "#/hosts");
    this.element = make("select", { "aria-label": "host", change: go });
    this.names = [];
  }

  update(names) {
    if (names.length === this.names.length && names.every((name, at) => name === this.names[at])) return;
    this.names = names;
    const option = (name, words) => make("option", { value: name, selected: name === (this.chosen || "") && "" }, words);
    this.element.replaceChildren(option("", "all hosts"), ...names.map((name) => option(name, name)));
    this.element.value = this.chosen || "";
  }
}

/** This server and those of the admin_host lines: each in a row, then what they do together, or what one of them does. */
async function hosts(chosen) {
  const choice = new HostChoice(chosen);
  const [all, locations, peers, crew] = [
    new LiveTable("hosts", HOSTS), new LiveTable("routes", HOST_LOCATIONS), new LiveTable("tries", HOST_PEERS), new LiveTable("crew", HOST_WORKERS),
  ];
  const words = make("p", { class: "faint" });
  show(make("div", { class: "bar" }, make("h1", {}, "Hosts"), choice.element), all.element, words,
    make("h2", {}, "Locations"), locations.element, make("h2", {}, "Upstreams"), peers.element, make("h2", {}, "Workers"), crew.element,
    make("p", { class: "faint" }, "Rates and times are of the last seconds; refused, reset, repeated and blocked since each server began. Latencies of several hosts are those of all their requests together."));
  await follow(async () => {
    const known = await ask("hosts", { host: chosen });
    choice.update(known.hosts.map((row) => row.host));
    all.update(known.hosts.map((row) => ({ ...row, key: row.host })));
    locations.update(known.locations.map((row) => ({ ...row, key: row.location })));
    peers.update(known.upstreams.map((row) => ({ ...row, key: row.peer })));
    crew.update(known.workers.map((row) => ({ ...row, key: row.host + " " + row.worker })));
    words.textContent = hostsInWords(known.hosts);
  });
}

function hostsInWords(rows) {
  if (rows.length === 1) return "Lines \"admin_host ADDRESS;\" name other servers, by their admin listeners.";
  const silent = rows.filter((row) => row.state === "silent").length;
  return rows.length + " hosts, " + (silent ? silent + " of them silent" : "none of them silent");
}
