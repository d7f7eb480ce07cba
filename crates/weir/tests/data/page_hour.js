// Put before the page of the admin listener: its clock runs PAGE_SPEED times as fast, each look at the history brings the
// next second with other figures, and findings and locations come and go. What the page keeps of an hour is then there in
// a minute. `polls` counts the looks.
(() => {
  const [later, ask, speed] = [window.setTimeout, window.fetch, window.PAGE_SPEED || 100];
  window.setTimeout = (work, ms, ...more) => later(work, (ms || 0) / speed, ...more);
  window.polls = 0;
  const known = new Map();

  const varied = (value) => {
    if (Array.isArray(value)) return value.map(varied);
    return typeof value === "number" ? (value <= 1 ? value * Math.random() : Math.round(value * (0.5 + Math.random()))) : value;
  };
  // The last point of each figure.
  const next = (value, key) => {
    if (key === "bins_ns") return value;
    if (key === "series" || key === "workers") return value.map((one) => next(one));
    if (Array.isArray(value)) return value.length ? [varied(value[value.length - 1])] : [];
    if (!value || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, next(inner, name)]));
  };
  const respond = (value) => new Response(JSON.stringify(value), { headers: { "Content-Type": "application/json" } });

  async function history(path, options) {
    window.polls += 1;
    const first = path.replace(/since=\d+/, "since=0");
    if (!known.has(first)) {
      const whole = await (await ask(first, options)).json();
      if (!whole.ends_unix_ms.length) return respond(whole);
      known.set(first, { whole, ends: whole.ends_unix_ms[whole.ends_unix_ms.length - 1] });
      return respond(whole);
    }
    const state = known.get(first);
    const made = next(state.whole);
    state.ends += state.whole.step_ns / 1e6;
    made.ends_unix_ms = [state.ends];
    made.lengths_ns = [state.whole.step_ns];
    const some = made.locations.series.length;
    if (some) made.locations.series[window.polls % some].name = "/made/" + Math.floor(window.polls / 40) + "/";
    return respond(made);
  }

  const kinds = ["cpu", "blocked", "slow_peer", "uneven", "gc"];
  const found = (number) => ({
    kind: kinds[number % kinds.length], weight: 1, says: "finding " + number + " of " + Math.random(), subject: "/made/" + number + "/",
    line: number % 2 ? "/srv/made.lua:" + number : "", command: "weir why",
  });
  let looks = 0;
  async function why() {
    looks += 1;
    const count = Math.floor(looks / 10) % 6;
    return respond({ seconds: 2, findings: Array.from({ length: count }, (_, at) => found(Math.floor(looks / 10) + at)) });
  }

  // What is counted rises, and what failed last is others each time.
  let tlsNow;
  async function tls(path, options) {
    window.polls += 1;
    tlsNow = tlsNow || (await (await ask(path, options)).json());
    const more = (rows) => rows.map((row) => ({ ...row, total: row.total + window.polls * 3 }));
    const sums = { complete: tlsNow.complete + window.polls * 5, full: tlsNow.full + window.polls * 2, failed: tlsNow.failed + window.polls };
    const last = tlsNow.last_failures.map((row) => ({ ...row, client: "127.0.0.1:" + Math.floor(Math.random() * 65536) }));
    return respond({ ...tlsNow, ...sums, handshakes: more(tlsNow.handshakes), failures: more(tlsNow.failures), times: varied(tlsNow.times), last_failures: last });
  }

  window.fetch = (path, options) => {
    if (path.startsWith("history?")) return history(path, options);
    if (path.startsWith("tls?")) return tls(path, options);
    return path.startsWith("why?") ? why() : ask(path, options);
  };
})();
