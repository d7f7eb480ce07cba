// ---- comparing ------------------------------------------------------------------------------------------------------

const SIDES = [["", ""], ["A"], ["B"], ["B − A"], ["±", "wide"], ["change"]];

async function compare(a = "", b = "") {
  const side = (name, value) => make("input", { "aria-label": name, placeholder: name + ": /path, or location=", value, list: "routes" });
  const [one, two] = [side("A", a), side("B", b)];
  const result = make("div", {});
  const button = make("button", {}, "compare");
  const cancel = make("button", { type: "button", hidden: "" }, "cancel");
  const far = make("progress", { max: 10, value: 0 });
  const words = make("span", { class: "faint" });
  const begin = async (event) => {
    event.preventDefault();
    const stop = new AbortController();
    cancel.onclick = () => stop.abort();
    left.signal.addEventListener("abort", () => stop.abort());
    cancel.hidden = false;
    button.disabled = true;
    result.replaceChildren(make("div", { class: "bar" }, far, words));
    try {
      const values = { a: one.value, b: two.value, rounds: 10, n: 100, progress: "1" };
      const response = await get("compare" + query(values), { signal: stop.signal });
      await eachLine(response, (line) => compareLine(line, { far, words, result }));
    } catch (error) {
      const stopped = error.name === "AbortError";
      result.replaceChildren(make("p", { class: stopped ? "faint" : "bad" }, stopped ? "cancelled" : error.message));
    } finally {
      cancel.hidden = true;
      button.disabled = false;
    }
  };
  const routes = make("datalist", { id: "routes" });
  show(make("h1", {}, "Compare"), make("form", { class: "bar", submit: begin }, one, two, button, cancel), routes, result);
  const known = await ask("top/routes", { every: "0" });
  routes.replaceChildren(...known.map((row) => make("option", { value: ofLocation(row.location) })));
}

/** Calls `take` with each line of JSON as it comes. */
async function eachLine(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    text += piece.value;
    const whole = text.split("\n");
    text = whole.pop();
    for (const line of whole.filter(Boolean)) take(JSON.parse(line));
  }
}

function compareLine(line, { far, words, result }) {
  if (line.error) throw new Error(line.error);
  if (line.note === undefined) return result.replaceChildren(compared(line));
  words.textContent = line.note;
  const round = /round (\d+) of (\d+)/.exec(line.note);
  if (round) [far.value, far.max] = [Number(round[1]) - 1, Number(round[2])];
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
