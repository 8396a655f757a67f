// Makes the pages live: times in the reader's zone, fresh content, dialogs, keys. Every
// page and every form works without this file.

const root = document.body.dataset.root;
const stored = (key) => { try { return localStorage.getItem("durable." + key); } catch { return null; } };
const store = (key, value) => { try { localStorage.setItem("durable." + key, value); } catch { /* it is forgotten */ } };

// The one place where text becomes elements. What is parsed comes from these pages only.
const policy = window.trustedTypes?.createPolicy("durable", { createHTML: (text) => text });
const parse = (text) => new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");

// Times: the zone of the browser, or UTC by the key u.
let utc = stored("utc") === "yes";
const zone = () => (utc ? { timeZone: "UTC" } : {});
function showTimes(within) {
  const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false, ...zone() });
  const minute = new Intl.DateTimeFormat([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false, ...zone() });
  const second = new Intl.DateTimeFormat([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false, ...zone() });
  const whole = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "long", hour12: false, ...zone() });
  for (const time of within.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.dataset.utc ??= time.title;
    time.title = `${whole.format(at)}\n${time.dataset.utc}`;
    if (time.dataset.form === "clock") time.textContent = clock.format(at) + (utc ? " UTC" : "");
    if (time.dataset.form === "minute") time.textContent = minute.format(at);
    if (time.dataset.form === "second") time.textContent = second.format(at);
    if (time.dataset.form === "exact") time.textContent = whole.format(at);
  }
}

// Fresh content: the page is fetched again, and its live regions become what they are there.
const live = document.getElementById("live"), lost = document.getElementById("lost");
const word = live.querySelector(".live-word"), pauser = document.getElementById("live-switch");
let paused = stored("paused") === "yes", waiting = false, failures = 0, timer = 0, retry = 0, inFlight = false, again = false, fault = "", seen = new Date(), out = false, leaving = false;
function tell(state, text) {
  live.dataset.state = state;
  if (word.textContent !== text) word.textContent = text;
}

// What is shown is old: since when, and why. It is said once, not with each try.
function showLost(on) {
  document.body.classList.toggle("stale", on);
  if (lost.hidden === !on) return;
  const at = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false, ...zone() }).format(seen);
  document.getElementById("lost-text").textContent = out ? "Your session has ended. Log in to continue: what you have typed here is not sent."
    : `${fault} What you see is of ${at}. This page tries again by itself.`;
  document.getElementById("lost-again").textContent = out ? "Log in" : "Try now";
  lost.hidden = !on;
}
document.getElementById("lost-again").addEventListener("click", () => { if (out) location.reload(); else refresh(); });

// A reader who chooses rows, types or answers is not disturbed.
function busy() {
  const at = document.activeElement;
  return document.getElementById("dialog").open || document.querySelector("tbody input[type=checkbox]:checked") !== null
    || (at && at.closest("[data-live]") && at.matches("input, select, textarea")) || (getSelection()?.toString() ?? "") !== "";
}

const callbacks = {
  beforeAttributeUpdated: (name, node) => !(node.tagName === "DETAILS" && name === "open") && !(node.tagName === "TR" && name === "class"),
};

async function refresh() {
  if (out || leaving || document.hidden || "posted" in document.body.dataset) return;
  if (inFlight) { again = true; return; } // what is on its way may be of before
  inFlight = true; again = false;
  clearTimeout(retry);
  try {
    fault = "This page cannot be reached.";
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin", signal: AbortSignal.timeout(8000) });
    if (answer.redirected || answer.status === 401) {
      out = busy(); // what was typed is not thrown away
      if (!out) location.reload();
      return;
    }
    const next = parse(await answer.text());
    fault = "The database does not answer.";
    if (document.getElementById("failure") && answer.ok) { location.reload(); return; }
    if (next.getElementById("failure") && !document.getElementById("failure")) throw new Error(fault);
    failures = 0; seen = new Date();
    if (busy()) { waiting = true; return; }
    showTimes(next);
    for (const now of document.querySelectorAll("[data-live]")) {
      const then = next.getElementById(now.id);
      if (then) Idiomorph.morph(now, then, { morphStyle: "outerHTML", ignoreActiveValue: true, callbacks });
    }
    waiting = false;
  } catch {
    failures++; // one answer may get lost
    retry = setTimeout(() => { if (!paused) refresh(); }, failures === 1 ? 1500 : Math.min(30000, 4000 * failures));
  } finally {
    inFlight = false;
    say();
    if (again) soon();
  }
}

function say() {
  showLost(out || failures > 1);
  if (out) tell("lost", "logged out");
  else if (failures > 1) tell("lost", "no connection");
  else if (paused) tell("paused", "paused");
  else if (waiting) tell("waiting", "changed, waits for you");
  else tell("live", "live");
}

// The stream says when to ask again; without one the clock does. A browser opens six connections
// to a server at most, so of all tabs that are in sight one has the stream and tells the others.
// Elapsed time is that of performance.now: the reader's clock may be set back.
const me = crypto.getRandomValues(new Uint32Array(2)).join("-");
let stream = null, last = -Infinity, tried = -Infinity, heard = -Infinity, channel = null;
const elapsed = () => performance.now();
const others = (what) => channel?.postMessage({ ...what, from: me });
function soon() {
  if (paused || document.hidden) return;
  clearTimeout(timer);
  timer = setTimeout(() => { last = elapsed(); refresh(); }, Math.max(0, last + 2000 - elapsed()));
}
function join() {
  if (channel || typeof BroadcastChannel === "undefined") return;
  channel = new BroadcastChannel(`durable ${new URL(root, location.href).pathname}`);
  channel.addEventListener("message", ({ data }) => {
    if (data.has) { heard = elapsed(); if (data.from > me) shut(); } // two had begun: one of them ends
    if (data.asks && stream) others({ has: true });
    if (data.changed) soon();
    if (data.gone) { heard = -Infinity; open(); }
  });
}
// Who opens a page asks the others first, and for a moment leaves them time to answer.
function open() {
  if (stream || document.hidden || typeof EventSource === "undefined" || elapsed() - tried < 15000) return;
  others({ asks: true });
  setTimeout(lead, 150 + 300 * Math.random());
}
function lead() {
  if (stream || document.hidden || elapsed() - heard < 12000) return;
  tried = elapsed();
  others({ has: true });
  stream = new EventSource(root + "live");
  stream.addEventListener("changed", () => { others({ changed: true }); soon(); });
  stream.addEventListener("error", () => { if (stream?.readyState === EventSource.CLOSED) close(); soon(); });
}
function shut() { stream?.close(); stream = null; }
function close() { if (stream) { shut(); others({ gone: true }); } }
setInterval(() => {
  if (document.hidden) return;
  if (stream) others({ has: true });
  else if (elapsed() - heard > 12000) open();
  if (!paused && failures === 0 && elapsed() - last > 9000) soon();
}, 5000);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { close(); return; } // others may be in sight
  tried = -Infinity;
  open();
  soon();
});
for (const change of ["online", "offline"]) addEventListener(change, soon);
addEventListener("pagehide", () => { close(); channel?.close(); channel = null; });
addEventListener("pageshow", (event) => { if (event.persisted) { leaving = false; tried = -Infinity; join(); open(); soon(); } });

function pause(on) {
  paused = on;
  pauser.setAttribute("aria-pressed", on);
  store("paused", on ? "yes" : "no");
  say();
  if (!on) refresh();
}
pauser.addEventListener("click", () => pause(!paused));
pauser.setAttribute("aria-pressed", paused);

// Since noon, of the reader's day: the last one that has passed.
const noon = document.querySelector("[data-noon]");
if (noon) {
  const at = new Date(); if (at.getHours() < 12) at.setDate(at.getDate() - 1); at.setHours(12, 0, 0, 0);
  const since = at.toISOString().slice(0, 16) + "Z", address = new URL(noon.href);
  address.searchParams.set("since", since); noon.href = address.href;
  if (new URLSearchParams(location.search).get("since") === since) noon.setAttribute("aria-current", "true");
}

// A chosen tab is in sight where not all of them are.
for (const tab of document.querySelectorAll(".tabs [aria-current]")) {
  const tabs = tab.parentElement;
  tabs.scrollLeft = tab.offsetLeft - tabs.offsetLeft - (tabs.clientWidth - tab.offsetWidth) / 2;
}

// Choosing runs.
const list = document.querySelector("form[data-select]");
const narrow = list !== null && "narrow" in list.dataset;
function count() {
  const chosen = list.querySelectorAll("tbody input[name=id]:checked").length;
  const all = list.querySelector("input[name=all]").checked;
  const every = all || chosen === 0 && narrow; // of a list that is narrowed, none means all that match
  document.getElementById("chosen").textContent = all ? "all that match" : every ? "none chosen, so all that match" : chosen === 0 ? "none chosen" : chosen === 1 ? "1 chosen" : `${chosen} chosen`;
  for (const button of list.querySelectorAll(".bar button")) button.disabled = chosen === 0 && !every;
  for (const row of list.querySelectorAll("tbody tr")) row.setAttribute("aria-selected", row.querySelector("input[name=id]")?.checked ?? false);
}
if (list?.querySelector(".bar")) {
  list.addEventListener("change", (event) => {
    if (event.target.matches("[data-all]")) for (const box of list.querySelectorAll("tbody input[name=id]")) box.checked = event.target.checked;
    count();
  });
  count();
  addEventListener("pageshow", count);
}

// Columns of the list, as this browser has chosen them.
if (list) {
  const shown = () => [...list.querySelectorAll("[data-column]")].filter((box) => box.checked).map((box) => box.dataset.column);
  const kept = stored("columns")?.split(" ");
  for (const box of list.querySelectorAll("[data-column]")) {
    const name = "hide-" + box.dataset.column;
    box.checked = kept ? kept.includes(box.dataset.column) : !list.classList.contains(name);
    list.classList.toggle(name, !box.checked);
    box.addEventListener("change", () => { list.classList.toggle(name, !box.checked); store("columns", shown().join(" ")); });
  }
}

// Questions in a dialog instead of a page of their own.
const dialog = document.getElementById("dialog");
async function ask(address) {
  if (document.body.classList.contains("stale")) return; // the answer would be of what is not there any more
  try {
    const answer = await fetch(address, { credentials: "same-origin", headers: { Accept: "text/html" } });
    const body = parse(await answer.text()).querySelector("[data-dialog-body]");
    if (!body) { location.href = address; return; }
    for (const form of [body, ...body.querySelectorAll("form")]) if (form.hasAttribute("action")) form.setAttribute("action", new URL(form.getAttribute("action"), answer.url).href);
    for (const anchor of body.querySelectorAll("a[href]")) anchor.href = new URL(anchor.getAttribute("href"), answer.url).href;
    showTimes(body);
    dialog.replaceChildren(document.adoptNode(body));
    dialog.showModal();
    (dialog.querySelector("input:not([type=hidden])") ?? dialog.querySelector("[data-keep]"))?.focus();
  } catch { location.href = address; }
}
document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[data-dialog]");
  if (anchor && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) { event.preventDefault(); ask(anchor.href); }
  if (event.target.closest?.("[data-keep]") && dialog.open) { event.preventDefault(); dialog.close(); }
  if (event.target === dialog) dialog.close();
});
document.addEventListener("submit", (event) => {
  if (event.target.matches("form[data-select]") && event.submitter) {
    event.preventDefault();
    const query = new URLSearchParams(new FormData(event.target, event.submitter));
    if (narrow && !query.has("id")) query.set("all", "true");
    ask(`${new URL(event.target.getAttribute("action"), location.href)}?${query}`);
  }
  if (event.target.getAttribute("method") !== "post") return;
  leaving = true; // what is shown may be gone before the answer is there
  for (const button of event.target.querySelectorAll("button")) setTimeout(() => { button.disabled = true; });
});

// A notice is of the change before this page: a reload does not repeat it.
if (document.querySelector("[data-notice]")) {
  const address = new URL(location.href);
  for (const name of ["did", "changed", "cancel_requested", "unchanged", "conflict", "locked", "not_found"]) address.searchParams.delete(name);
  history.replaceState(null, "", address);
}

// Copying.
for (const part of document.querySelectorAll("div[data-copy]")) {
  const button = document.createElement("button");
  button.type = "button"; button.className = "copy small quiet"; button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard?.writeText(part.querySelector("pre").textContent);
    button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  part.append(button);
}

// Charts: the words of what the pointer is over.
const tip = document.getElementById("tip");
document.addEventListener("pointermove", (event) => {
  const step = event.target.closest?.("[data-tip]")?.dataset;
  tip.hidden = !step;
  if (!step) return;
  tip.textContent = `${new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "short", hour12: false, ...zone() }).format(new Date(step.at))}\n${step.tip}`;
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
});

// The theme.
document.getElementById("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme === "dark" || !document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  store("theme", document.documentElement.dataset.theme);
});

// Keys.
let prefix = "", single = stored("keys") !== "off";
function move(step) {
  const rows = [...document.querySelectorAll("#list tbody tr")];
  const at = rows.findIndex((row) => row.classList.contains("cursor"));
  const to = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
  if (!to) return;
  rows[at]?.classList.remove("cursor");
  to.classList.add("cursor");
  to.scrollIntoView({ block: "nearest" });
}
const cursor = () => document.querySelector("#list tbody tr.cursor");
const keys = {
  "/": () => document.getElementById("find").focus(),
  j: () => move(1), k: () => move(-1),
  x: () => cursor()?.querySelector("input[type=checkbox]")?.click(),
  Enter: () => cursor()?.querySelector("td a")?.click(),
  "]": () => document.querySelector("a[rel=next]")?.click(),
  "[": () => history.back(),
  u: () => { utc = !utc; store("utc", utc ? "yes" : "no"); showTimes(document); },
  ".": () => pause(!paused),
  "?": help,
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open || event.target.matches("input:not([type=checkbox]), select, textarea, [contenteditable]")) return;
  if (!single && event.key !== "?") return;
  if (prefix === "g") {
    prefix = "";
    document.querySelector(`.nav a[data-key="${CSS.escape(event.key)}"]`)?.click();
    return;
  }
  if (event.key === "g") { prefix = "g"; setTimeout(() => { prefix = ""; }, 1200); return; }
  const act = ["c", "e", "d"].includes(event.key) && document.querySelector(`a[data-act="${event.key}"]`);
  if (act) { event.preventDefault(); act.click(); return; }
  if (event.key === "Enter" && !cursor()) return;
  if (keys[event.key]) { if (event.key !== "Enter" || event.target === document.body) { event.preventDefault(); keys[event.key](); } }
});
function help() {
  const lines = [["/", "find a run"], ["g then o r p q j s w l k a", "go to a page"], ["j k", "down, up a list"], ["x", "choose a row"], ["Enter", "open a row"], ["]", "older"],
    ["c e d", "cancel, retry, delete the run"], ["u", "times in UTC"], [".", "pause, continue"], ["Esc", "close"]];
  const title = document.createElement("h1"), table = document.createElement("div"), label = document.createElement("label"), box = document.createElement("input");
  title.textContent = "Keys"; table.className = "keys";
  for (const [key, what] of lines) { const a = document.createElement("kbd"), b = document.createElement("span"); a.textContent = key; b.textContent = what; table.append(a, b); }
  box.type = "checkbox"; box.checked = single;
  box.addEventListener("change", () => { single = box.checked; store("keys", single ? "on" : "off"); });
  label.append(box, " single keys are on");
  const body = document.createElement("div"); body.className = "confirm"; body.append(title, table, label);
  dialog.replaceChildren(body); dialog.showModal();
}

showTimes(document);
say();
join();
open();
