// ---- blocked loops --------------------------------------------------------------------------------------------------

async function tick() {
  const ticker = document.getElementById("ticker");
  ticker.textContent = "no loop was blocked since this page was opened";
  for (;;) {
    try {
      const answer = await get("blocked", { signal: undefined });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        text += piece.value;
        const events = text.split("\n\n");
        text = events.pop();
        for (const event of events) tell(ticker, event);
      }
    } catch (error) {
      if (error instanceof Unauthorized) return;
    }
    await pause(2000);
  }
}

function tell(ticker, event) {
  const data = event.split("\n").find((line) => line.startsWith("data: "));
  if (!data) return;
  const stall = JSON.parse(data.slice(6));
  // What held the loop outside of all requests, and nobody waited for it: mostly a thread without a processor.
  if (stall.site === "-" && !stall.victims.length) return;
  const verb = stall.ongoing ? "is blocked for " : "was blocked for ";
  const victims = stall.victims.length ? ", " + stall.victims.length + " requests waited" : "";
  const words = "worker " + stall.worker + " " + verb + time(stall.duration_ns) + " in " + stall.site + ", location " + stall.location + victims;
  ticker.replaceChildren(make("a", { href: "#/workers" }, words));
  ticker.classList.add("fresh");
  clearTimeout(ticker.timer);
  ticker.timer = setTimeout(() => ticker.classList.remove("fresh"), 5000);
}

// ---- views ----------------------------------------------------------------------------------------------------------

const VIEWS = { "": overview, route, requests, req: request, workers, upstreams, lua, tls, server, hosts, flame, compare };

function failed(error) {
  if (error.name === "AbortError") return;
  if (error instanceof Unauthorized) return login();
  for (const before of main.querySelectorAll(":scope > p.bad")) if (before.textContent === error.message) before.remove();
  main.prepend(make("p", { class: "bad" }, error.message));
}

/** Asks for the token of the admin line; it is kept until the tab is closed. */
function login() {
  const token = make("input", { type: "password", "aria-label": "token", placeholder: "token" });
  const enter = (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", token.value);
    tick();
    start();
  };
  show(make("h1", {}, "Token"), make("form", { class: "bar", submit: enter }, token, make("button", {}, "enter")));
}

function start() {
  left.abort();
  left = new AbortController();
  const parts = window.location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const view = Object.hasOwn(VIEWS, parts[0]) ? VIEWS[parts[0]] : overview;
  const here = { route: "", req: "requests" }[parts[0]] ?? parts[0];
  for (const link of document.querySelectorAll("nav a")) {
    link.classList.toggle("here", link.hash.replace(/^#\/?/, "") === here);
  }
  show(make("p", { class: "faint" }, "…"));
  view(...parts.slice(1)).catch(failed);
}

function theme() {
  const root = document.documentElement;
  const dark = getComputedStyle(root).colorScheme === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

document.documentElement.dataset.theme = localStorage.getItem("theme") || "";
document.getElementById("theme").addEventListener("click", theme);
window.addEventListener("hashchange", start);
start();
tick();
