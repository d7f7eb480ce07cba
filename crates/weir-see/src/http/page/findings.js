// ---- what is wrong now ----------------------------------------------------------------------------------------------

/** Where the page has more of a finding, by its kind: a name, and the address of a view. */
const MORE = {
  errors: ({ subject }) => ["location " + subject, path("route", subject)],
  cpu: ({ subject }) => ["flame cpu", path("flame", "cpu", subject === "-" ? "" : subject)],
  gc: () => ["lua", path("lua")],
  disk: ({ subject }) => (subject === "files" ? ["server", path("server")] : ["workers", path("workers")]),
  slow_peer: () => ["upstreams", path("upstreams")],
  zone: () => ["server", path("server")],
  logs: () => ["server", path("server")],
  certificate: () => ["tls", path("tls")],
  handshakes: () => ["tls", path("tls")],
  faulty_peer: () => ["upstreams", path("upstreams")],
};
const moreOf = (finding) => (MORE[finding.kind] || (() => ["workers", path("workers")]))(finding);

/** The findings of `weir why`, the heaviest first: a sentence with its line, its view and its command each. */
class Findings {
  constructor() {
    this.state = make("p", { class: "faint" }, "looking for what is wrong…");
    this.list = make("ol", {});
    this.rows = new Map();
    this.element = make("section", { id: "findings", "aria-label": "what is wrong now" }, this.state, this.list);
  }

  update({ seconds, findings }) {
    const rows = new Map();
    for (const finding of findings) {
      let key = [finding.kind, finding.subject, finding.line, finding.command].join("\n");
      while (rows.has(key)) key += "\n";
      rows.set(key, this.rows.get(key) || this.begin(finding));
      const { says } = rows.get(key);
      if (says.textContent !== finding.says) says.textContent = finding.says;
    }
    this.rows = rows;
    const shown = [...rows.values()].map(({ element }) => element);
    // What is there already stays: a link that is pointed at does not go.
    const same = shown.length === this.list.children.length && shown.every((element, at) => this.list.children[at] === element);
    if (!same) this.list.replaceChildren(...shown);
    this.element.className = shown.length ? "wrong" : "well";
    this.state.textContent = shown.length ? "" : "nothing is wrong that can be seen in " + seconds.toFixed(0) + " s, until " + clock(Date.now());
  }

  begin(finding) {
    const says = make("span", {});
    const [view, address] = moreOf(finding);
    const line = finding.line ? lineLink(finding.line) : undefined;
    const links = make("div", { class: "links" }, line, make("a", { href: address }, view), make("code", {}, finding.command));
    return { says, element: make("li", { "data-kind": finding.kind }, says, links) };
  }

  /** Looks again and again, as long as the view is shown. */
  follow() {
    return follow(async () => this.update(await ask("why", { every: "2s", n: 5 })), 500);
  }
}
