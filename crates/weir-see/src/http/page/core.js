// The page of the admin listener: what the commands show, for a browser. One view at a time, chosen by the part of the
// address after the #; a view that is left stops asking. Names come from configurations and requests, so that
// everything is put in as text, never as HTML.
"use strict";

const main = document.getElementById("main");
let left = new AbortController();

// ---- asking ---------------------------------------------------------------------------------------------------------

class Unauthorized extends Error {}

async function get(path, options) {
  const token = sessionStorage.getItem("token");
  const headers = { Accept: "application/json", ...(options && options.headers) };
  if (token) headers.Authorization = "Bearer " + token;
  const { signal } = left;
  const response = await fetch(path, { signal, ...options, headers });
  if (response.status === 401) throw new Unauthorized("the token is missing or wrong");
  if (!response.ok) throw new Error(reasonOf(await response.text()) || "responded " + response.status);
  return response;
}

/** Why there is no response: plain text, or the error in an object. */
function reasonOf(text) {
  try {
    return JSON.parse(text).error || text.trim();
  } catch {
    return text.trim();
  }
}

const ask = async (path, values) => (await get(path + query(values))).json();

/** Lines of JSON, a value each. */
async function askLines(path, values) {
  const text = await (await get(path + query(values))).text();
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

function query(values) {
  const set = Object.entries(values || {}).filter(([, value]) => value !== undefined);
  return "?" + new URLSearchParams([...set, ["fmt", "json"]]).toString();
}

/** A word of `match`; what has spaces is in quotes. */
const word = (key, value) => (/\s/.test(value) ? key + '="' + value + '"' : key + "=" + value);
const ofLocation = (location) => word("location", location);

/** Calls `step` once a second as long as the view is shown. A step that fails is shown and tried again. */
async function follow(step, every = 1000) {
  const { signal } = left;
  for (let broken; !signal.aborted; await pause(every)) {
    if (document.hidden) continue;
    try {
      await step();
      if (broken) broken.remove();
      broken = undefined;
    } catch (error) {
      if (error.name === "AbortError" || error instanceof Unauthorized) throw error;
      if (!broken && !signal.aborted) main.prepend((broken = make("p", { class: "bad" }, error.message)));
    }
  }
}

// ---- drawing --------------------------------------------------------------------------------------------------------

/** An element with attributes, properties that are functions as listeners, and children. */
function make(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for a drawing. */
function draw(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

function show(...parts) {
  main.replaceChildren(...parts);
}

function time(ns) {
  if (ns === null || ns === undefined) return "-";
  const size = Math.abs(ns);
  if (size < 1e6) return (ns / 1e3).toFixed(1) + " µs";
  if (size < 1e9) return (ns / 1e6).toFixed(1) + " ms";
  return (ns / 1e9).toFixed(2) + " s";
}

function bytes(number) {
  if (number === null || number === undefined) return "-";
  const units = ["B", "KiB", "MiB", "GiB"];
  const unit = units.findIndex((_, at) => number < 1024 ** (at + 1) || at === units.length - 1);
  return (number / 1024 ** unit).toFixed(unit ? 1 : 0) + " " + units[unit];
}

const share = (part) => (part === null || part === undefined ? "-" : (part * 100).toFixed(1) + "%");
const rate = (number) => (number === null || number === undefined ? "-" : number < 10 ? number.toFixed(1) : number.toFixed(0));
const path = (...parts) => "#/" + parts.map(encodeURIComponent).join("/");
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const sum = (values) => values.reduce((all, value) => all + (value || 0), 0);
const clock = (unixMs) => new Date(unixMs).toLocaleTimeString([], { hour12: false });

/** A table; columns are [head, class]. */
function table(kind, columns, rows) {
  const head = columns.map(([text, wide]) => make("th", { class: wide }, text));
  const drawn = make("table", { class: kind }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
  return make("div", { class: "scroll" }, drawn);
}

function cells(columns, values) {
  return values.map((value, at) => make("td", { class: columns[at][1] }, value));
}

/** A table whose rows stay the same elements while their figures change. `columns`: head, class, and what a row shows. */
class LiveTable {
  constructor(kind, columns) {
    this.columns = columns;
    this.rows = new Map();
    this.element = table(kind, columns.map(({ head, kind: wide }) => [head, wide]), []);
    this.body = this.element.querySelector("tbody");
  }

  /** Shows these, in this order; each has its `key`. */
  update(shown) {
    const gone = new Set(this.rows.keys());
    let before = null;
    for (const row of shown) {
      gone.delete(row.key);
      let drawn = this.rows.get(row.key);
      if (!drawn) this.rows.set(row.key, (drawn = this.begin(row)));
      this.columns.forEach((column, at) => column.update && column.update(drawn.cells[at], row));
      const place = before ? before.nextSibling : this.body.firstChild;
      if (place !== drawn.element) this.body.insertBefore(drawn.element, place);
      before = drawn.element;
    }
    for (const key of gone) {
      this.rows.get(key).element.remove();
      this.rows.delete(key);
    }
  }

  begin(row) {
    const cells = this.columns.map((column) => make("td", { class: column.kind }, column.begin ? column.begin(row) : ""));
    return { element: make("tr", {}, ...cells), cells };
  }
}

/** A column of text that changes, red where `isBad`. */
function figure(head, text, { kind, isBad } = {}) {
  return {
    head,
    kind,
    update(cell, row) {
      const shown = text(row);
      if (cell.textContent !== shown) cell.textContent = shown;
      if (isBad) cell.classList.toggle("bad", isBad(row));
    },
  };
}

/** Rows of figures under the names that the server gives them; the ends of names say what they are. */
function figures(rows, { links = {}, leave = [] } = {}) {
  if (!rows.length) return make("p", { class: "faint" }, "none");
  const keys = Object.keys(rows[0]).filter((key) => !leave.includes(key));
  const columns = keys.map((key) => [key.replace(/_(ns|per_second)$/, (end) => (end === "_ns" ? "" : "/s")).replaceAll("_", " ")]);
  const value = (key, row) => (links[key] && links[key](row)) || amount(key, row[key]);
  return table("figures", columns, rows.map((row) => make("tr", {}, ...cells(columns, keys.map((key) => value(key, row))))));
}

function amount(key, value) {
  if (value === null || value === undefined) return "-";
  if (typeof value !== "number") return String(value);
  if (key.endsWith("_ns")) return time(value);
  if (key.includes("bytes") || key === "size" || key === "memory") return bytes(value);
  if (/(^|_)share(_|$)/.test(key)) return share(value);
  return Number.isInteger(value) ? String(value) : rate(value);
}

// ---- lines of the configuration, and texts --------------------------------------------------------------------------

async function openText(file, line) {
  const text = await ask("text", { file, line });
  const list = document.getElementById("source-text");
  document.getElementById("source-name").textContent = file + ":" + line;
  list.start = text.first;
  list.replaceChildren(
    ...text.lines.map((words, at) => make("li", { class: text.first + at === line ? "meant" : undefined }, words)),
  );
  document.getElementById("source").showModal();
  const meant = list.querySelector(".meant");
  if (meant) meant.scrollIntoView({ block: "center" });
}

/** A link to a line of a text. */
function place(file, line, words) {
  const label = file.split("/").pop() + ":" + line + (words ? "  " + words : "");
  const open = (event) => {
    event.preventDefault();
    openText(file, line).catch(failed);
  };
  return make("a", { href: "#", title: file, click: open }, label);
}

/** The lines of the configuration that put `name` into a location. */
async function lines(location, name) {
  const found = await ask("lines", { location, name });
  return make("div", { class: "lines" }, ...found.map((line) => place(line.file, line.line, line.text)));
}

/** Where a frame of Lua is written: `/srv/waf.lua:88`; `content_by_lua(nginx.conf:12):3`, whose third line is two below the directive's. */
function luaPlace(name) {
  const [, file, line] = /^(.*):(\d+)( \[jit\])?$/.exec(name) || [];
  const [, conf, first] = /_by_lua\((.+):(\d+)\)$/.exec(file || "") || [];
  if (conf) return { file: conf, line: Number(first) + Number(line) - 1 };
  return file && file.endsWith(".lua") ? { file, line: Number(line) } : undefined;
}

/** A link to a line of a script or of the configuration (`nginx.conf:7`); the name alone where no text is known for it. */
function lineLink(name) {
  const [, file, line] = /^([^\s/]+):(\d+)$/.exec(name) || [];
  const found = luaPlace(name) || (file && { file, line: Number(line) });
  return found ? place(found.file, found.line) : make("span", {}, name);
}
