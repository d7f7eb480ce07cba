// ---- recordings of flame graphs ---------------------------------------------------------------------------------------

/** Recordings that this tab has, by name: those of the server, and files that were opened. Old ones are given up. */
const recordings = new Map();
const RECORDINGS = 20;

/** Has the server record and keep it; the name it has there. */
async function recordNow(kind, location, seconds) {
  const body = JSON.stringify({ kind, seconds: Number(seconds), route: location || undefined });
  const response = await get("recordings", { method: "POST", body, headers: { "Content-Type": "application/json" } });
  return (await response.json()).id;
}

/** A recording by name: of this tab, or of the server. */
async function recordingOf(id) {
  const known = recordings.get(id);
  if (known) return known;
  const [row, stacks] = await Promise.all([keptRow(id), ask("recordings/" + encodeURIComponent(id))]);
  return remembered(id, { stacks, kind: stacks.kind, location: row ? row.location : "", at: row ? row.unix_ms : Date.now() });
}

const keptRow = async (id) => (await ask("recordings")).find((row) => row.id === id);

function remembered(id, recording) {
  recordings.delete(id);
  recordings.set(id, { id, ...recording });
  for (const old of recordings.keys()) {
    if (recordings.size <= RECORDINGS) break;
    recordings.delete(old);
  }
  return recordings.get(id);
}

/** A file that was saved here, or by `weir flame -o FILE.json`. */
async function openRecording(file) {
  const wrong = (why) => new Error(file.name + " is no recording: " + why);
  let stacks;
  try {
    stacks = JSON.parse(await file.text());
  } catch (error) {
    throw wrong(error.message);
  }
  if (typeof stacks.kind !== "string" || !Array.isArray(stacks.stacks)) throw wrong("it has no kind and stacks");
  for (const stack of stacks.stacks) {
    const value = stack.value_ns ?? stack.value_bytes;
    if (typeof value !== "number" || !Array.isArray(stack.frames) || !stack.frames.every((frame) => typeof frame.name === "string")) throw wrong("a stack lacks its value or frames");
    for (const frame of stack.frames) frame.origin = String(frame.origin || "native").replace(/\W/g, "");
  }
  const id = "file " + file.name;
  return remembered(id, { stacks, kind: stacks.kind, location: "", at: stacks.unix_ms || Date.now(), file: file.name });
}

/** Saves a recording as a file that this page and `weir flame --from` open. */
function saveRecording({ stacks, kind, at }) {
  const url = URL.createObjectURL(new Blob([JSON.stringify(stacks)], { type: "application/json" }));
  const name = "flame-" + kind + "-" + new Date(at).toISOString().slice(0, 19).replace(/[:T]/g, "-") + ".json";
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** The recordings that the server keeps, and a way to open a file. `opened` is called with one. */
class RecordingList {
  constructor(opened) {
    this.rows = make("div", {});
    const input = make("input", { type: "file", accept: ".json,application/json", "aria-label": "open a recording", change: () => this.open(input.files[0]) });
    this.opened = opened;
    this.element = make("details", { class: "kept" }, make("summary", {}, "recordings of this server, and files"),
      make("p", { class: "faint" }, "The server keeps the last 20 until it ends; a reload leaves them. Save one to have it longer, and open it here again, or drop it onto the graph."),
      make("label", {}, "open a file ", input), this.rows);
    this.element.addEventListener("toggle", () => this.element.open && this.load().catch(failed));
  }

  /** A place onto which files are dropped. */
  takes(place) {
    place.addEventListener("dragover", (event) => event.preventDefault());
    place.addEventListener("drop", (event) => {
      event.preventDefault();
      this.open(event.dataTransfer.files[0]);
    });
  }

  open(file) {
    if (file) openRecording(file).then(this.opened).catch(failed);
  }

  async load() {
    const all = await ask("recordings");
    const columns = [["recording"], ["of"], ["until"], ["stacks", "wide"], ["size", "wide"], [""]];
    const remove = async (id) => {
      await get("recordings/" + id, { method: "DELETE" });
      await this.load();
    };
    this.rows.replaceChildren(all.length ? table("kept", columns, all.map((row) => make("tr", {}, ...cells(columns, [
      make("a", { href: path("flame", row.kind, row.location, row.id) }, row.kind), row.location || "all", clock(row.unix_ms), String(row.count), bytes(row.bytes),
      make("button", { type: "button", click: () => remove(row.id).catch(failed) }, "delete"),
    ])))) : make("p", { class: "faint" }, "the server keeps none"));
    return all;
  }
}
