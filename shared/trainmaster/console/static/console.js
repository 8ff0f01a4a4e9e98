// Keeps a page up to date, and its keys. Everything else works without this script.
"use strict";

const BACK_OFF_MAX_MS = 60000;
const IDLE_AFTER_MS = 300000; // without input for this long, polls become rarer
const ROW_LINKS = "main .row-link";

const live = document.getElementById("live");
let etag = document.body.dataset.etag ? `"${document.body.dataset.etag}"` : null;
let isPaused = false;
let lastInput = Date.now();
let delay = 0;
let timer = 0;
let previousKey = "";

function pollMs() {
  const seconds = Number(document.body.dataset.poll || 0);
  const isIdle = Date.now() - lastInput > IDLE_AFTER_MS && !document.querySelector("#follow[aria-pressed=true]");
  return isIdle ? Math.min(seconds * 12000, BACK_OFF_MAX_MS) : seconds * 1000;
}

function schedule(ms) {
  clearTimeout(timer);
  if (ms > 0 && !isPaused && document.visibilityState === "visible") timer = setTimeout(poll, ms);
}

function show(text) {
  live.textContent = text;
}

// Lets the browser draw and handle input before a long page is changed.
function nextTask() {
  return new Promise((resolve) => { setTimeout(resolve); });
}

async function apply(text) {
  const next = new DOMParser().parseFromString(text, "text/html");
  await nextTask();
  const before = document.getElementById("job-state")?.textContent;
  Idiomorph.morph(document.getElementById("main"), next.getElementById("main"), {
    ignoreActiveValue: true,
    callbacks: { beforeNodeMorphed: (present, updated) => !present.isEqualNode(updated) }, // most rows are equal
  });
  document.title = next.title;
  if (next.body.dataset.poll) document.body.dataset.poll = next.body.dataset.poll;
  else delete document.body.dataset.poll;
  const following = document.getElementById("next-page");
  if (following) location.replace(following.href);
  document.dispatchEvent(new Event("console:updated"));
  const state = document.getElementById("job-state");
  if (state && state.textContent !== before) document.getElementById("announcer").textContent = state.dataset.announce;
}

async function poll() {
  const began = Date.now();
  try {
    const headers = etag ? { "If-None-Match": etag } : {};
    const query = document.querySelector("[data-update]")?.dataset.update ?? location.search;
    const response = await fetch(location.pathname + query, { headers, cache: "no-store", redirect: "error" });
    if (response.status !== 200 && response.status !== 304) throw new Error(`status ${response.status}`);
    etag = response.headers.get("ETag");
    if (response.status === 200) await apply(await response.text());
    delay = pollMs();
    show(delay ? "live" : "");
  } catch {
    delay = Math.min(Math.max(delay, pollMs()) * 2, BACK_OFF_MAX_MS);
    show(`not updated since ${live.dataset.since || "the page was loaded"}`);
    schedule(delay);
    return;
  }
  live.dataset.since = new Date().toISOString().slice(11, 19);
  schedule(Math.max(delay - (Date.now() - began), delay / 2)); // polls begin, not end, at equal distances
}

function moveSelection(step) {
  const links = [...document.querySelectorAll(ROW_LINKS)];
  const present = links.indexOf(document.activeElement);
  const target = links[present < 0 ? 0 : Math.min(Math.max(present + step, 0), links.length - 1)];
  target?.focus();
}

function onKey(event) {
  lastInput = Date.now();
  const isTyping = event.target.closest("input, textarea, select, [contenteditable]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key;
  if (key === "/") document.getElementById("search")?.focus();
  else if (key === "j" && previousKey === "g") location.href = "/jobs";
  else if (key === "j") moveSelection(1);
  else if (key === "k") moveSelection(-1);
  else if (key === "?") location.href = "/help";
  else if (key === "p") togglePause();
  previousKey = key;
  if (key === "/") event.preventDefault();
}

function togglePause() {
  isPaused = !isPaused;
  show(isPaused ? "paused" : "live");
  schedule(isPaused ? 0 : pollMs());
}

document.addEventListener("keydown", onKey);
document.addEventListener("pointerdown", () => { lastInput = Date.now(); });
document.addEventListener("visibilitychange", () => {
  const isWatched = document.visibilityState === "visible" && pollMs();
  schedule(isWatched ? 50 : 0);
});
if (pollMs()) {
  show("live");
  schedule(pollMs());
}
