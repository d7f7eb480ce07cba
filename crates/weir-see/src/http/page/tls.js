// ---- TLS ------------------------------------------------------------------------------------------------------------

const isBadCertificate = (row) => !["valid"].includes(row.state);

const CERTIFICATES = [
  { head: "certificate", begin: (row) => aboutCertificate(row) },
  figure("state", (row) => row.state ?? "", { isBad: isBadCertificate }),
  figure("ends in", (row) => row.left ?? "", { isBad: isBadCertificate }),
  figure("key", (row) => row.key_type ?? "", { kind: "wide" }),
  figure("chain", (row) => row.chain ?? "", { isBad: (row) => ["broken", "incomplete"].includes(row.chain) }),
  figure("staple", (row) => row.staple ?? "", { kind: "wide", isBad: (row) => /^none: /.test(row.staple) }),
  figure("servers", (row) => count(row.servers), { kind: "wide" }),
  { head: "line", kind: "wide", begin: (row) => (row.line ? lineLink(row.line) : make("span", {}, "-")) },
];

/** The names of its servers, and what it says when that is opened. */
function aboutCertificate(row) {
  const facts = [
    ["subject", row.subject], ["names", row.alternative_names], ["issuer", row.issuer], ["until", row.until], ["chain", row.chain_says],
    ["signs on", row.signs_on], ["file", row.file], ["server", row.server_line],
  ];
  const words = facts.filter(([, value]) => value).map(([name, value]) => name + ": " + value);
  return make("details", {}, make("summary", {}, row.names), make("pre", {}, words.join("\n")), row.line ? lineLink(row.line) : undefined);
}

const HANDSHAKES = [
  figure("", (row) => row.of.replaceAll("_", " ")),
  figure("", (row) => row.value),
  figure("a second", (row) => rate(row.lately)),
  figure("share", (row) => share(row.share)),
  figure("total", (row) => String(row.total), { kind: "wide" }),
];

const HANDSHAKE_FAILURES = [
  figure("reason", (row) => row.reason.replaceAll("_", " ")),
  figure("first", (row) => row.by),
  figure("a second", (row) => rate(row.lately), { isBad: (row) => row.lately > 0 }),
  figure("share", (row) => share(row.share), { kind: "wide" }),
  figure("total", (row) => String(row.total)),
  figure("", (row) => row.means, { kind: "wide says" }),
];

const LAST_FAILURES = [
  figure("client", (row) => row.client),
  figure("asked for", (row) => row.server_name ?? "-"),
  figure("reason", (row) => row.reason.replaceAll("_", " ")),
  figure("first", (row) => row.by, { kind: "wide" }),
  figure("ago", (row) => ago(row.ago_ns).replace(" ago", "")),
];

/** Handshakes a second at each look, for a minute. */
class HandshakeHistory {
  constructor() {
    this.known = { points: 60, step_ns: 1e9, ends_unix_ms: [] };
    this.lines = [[], [], []];
  }

  look(tls) {
    const totals = [tls.full, tls.complete - tls.full, tls.failed];
    const at = performance.now();
    if (this.before) {
      const seconds = Math.max((at - this.at) / 1000, 0.1);
      // A server that began again counts from nothing.
      this.lines.forEach((line, number) => line.push(Math.max(0, totals[number] - this.before[number]) / seconds));
      this.known.ends_unix_ms.push(Date.now());
      for (const values of [this.known.ends_unix_ms, ...this.lines]) if (values.length > 60) values.shift();
    }
    [this.before, this.at] = [totals, at];
  }
}

/** Certificates, handshakes and why they fail, keys and caches. */
async function tls() {
  const [certificates, agreed, failures, last] = [
    new LiveTable("certificates", CERTIFICATES), new LiveTable("handshakes", HANDSHAKES), new LiveTable("closes", HANDSHAKE_FAILURES), new LiveTable("last", LAST_FAILURES),
  ];
  const chart = new Chart("handshakes a second", [{ name: "full", kind: "rate" }, { name: "resumed", kind: "middle" }, { name: "failed", kind: "error" }], rate);
  const past = new HandshakeHistory();
  const lately = [new LatelyRates((row) => row.of + " " + row.value), new LatelyRates((row) => row.reason)];
  const [none, well, unused] = [0, 1, 2].map(() => make("p", { class: "faint" }));
  const [times, sessions, keys] = [0, 1, 2].map(() => make("div", {}));
  show(make("h1", {}, "TLS"), make("h2", {}, "Certificates"), certificates.element, none, make("div", { class: "charts" }, chart.element),
    make("h2", {}, "Handshakes that fail"), failures.element, well, last.element,
    make("h2", {}, "What handshakes agreed upon"), agreed.element, unused, make("h2", {}, "How long they take"), times,
    make("h2", {}, "Sessions"), sessions, make("h2", {}, "Threads for keys"), keys,
    make("p", { class: "faint" }, "Rates are of the last ten seconds, all else since the server began. Keys themselves are shown nowhere."));
  await follow(async () => {
    const known = await ask("tls", { every: "0" });
    certificates.update(known.certificates.map((row) => ({ ...row, key_type: row.key, key: row.names + "\n" + row.file + "\n" + row.until_unix })));
    none.textContent = known.certificates.length ? "" : "no server has a certificate";
    past.look(known);
    chart.update(past.lines, past.known);
    agreed.update(lately[0].of(known.handshakes));
    failures.update(lately[1].of(known.failures).sort((a, b) => b.lately - a.lately || b.total - a.total));
    well.textContent = known.failures.length ? "" : "none has failed since the server began";
    last.element.hidden = !known.last_failures.length;
    last.update(known.last_failures.slice(0, 12).map((row, at) => ({ ...row, key: String(at) })));
    unused.textContent = known.handshakes.length ? "" : "there were no handshakes yet";
    for (const [shown, rows] of [[times, known.times], [sessions, known.sessions], [keys, known.keys]]) fillFigures(shown, rows);
  }, 1000);
}

/** Figures that are drawn again only when they have changed. */
function fillFigures(shown, rows) {
  const now = JSON.stringify(rows);
  if (shown.seen === now) return;
  shown.seen = now;
  shown.replaceChildren(figures(rows));
}

/** Rates of the last ten seconds out of totals. */
class LatelyRates {
  constructor(keyOf) {
    this.keyOf = keyOf;
    this.looks = [];
  }

  of(rows) {
    const totals = new Map(rows.map((row) => [this.keyOf(row), row.total]));
    this.looks.push({ at: performance.now(), totals });
    if (this.looks.length > 11) this.looks.shift();
    const [first] = this.looks;
    const seconds = Math.max((performance.now() - first.at) / 1000, 0.1);
    return rows.map((row) => {
      const since = Math.max(0, row.total - (first.totals.get(this.keyOf(row)) || 0));
      return { ...row, key: this.keyOf(row), lately: this.looks.length > 1 ? since / seconds : null };
    });
  }
}
