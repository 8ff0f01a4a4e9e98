// Follows a live log: keeps the newest line in view until the user scrolls up, and counts the lines that came since.
"use strict";

const SCROLLED_UP_PX = 10;

const followButton = document.createElement("button");
followButton.id = "follow";
followButton.className = "follow";
followButton.type = "button";
let isFollowing = false;
let unseenLines = 0;
let lastScrollY = 0;
let hasGap = false;
let knownLines = new Set(lineIds());

function lineIds() {
  return [...document.querySelectorAll("table.log tbody tr")].map((row) => row.id);
}

function followWords() {
  if (isFollowing) return "Following";
  return unseenLines ? `↓ ${unseenLines}${hasGap ? "+" : ""} new` : "Follow";
}

function showFollowing() {
  followButton.setAttribute("aria-pressed", String(isFollowing));
  followButton.textContent = followWords();
}

function scrollToEnd() {
  window.scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  lastScrollY = window.scrollY;
  unseenLines = 0;
}

function setFollowing(value) {
  isFollowing = value;
  if (isFollowing) scrollToEnd();
  showFollowing();
}

function onUpdate() {
  const lines = lineIds();
  unseenLines += lines.filter((id) => !knownLines.has(id)).length;
  hasGap = document.getElementById("gap") !== null; // then more lines came than the page shows
  knownLines = new Set(lines);
  if (isFollowing) scrollToEnd();
  showFollowing();
}

function onScroll() {
  if (isFollowing && window.scrollY < lastScrollY - SCROLLED_UP_PX) setFollowing(false);
  lastScrollY = window.scrollY;
}

function onFollowKey(event) {
  const isTyping = event.target.closest("input, textarea, select");
  if (event.key === "f" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) setFollowing(!isFollowing);
}

if (document.body.dataset.poll) {
  document.body.append(followButton);
  showFollowing();
  followButton.addEventListener("click", () => setFollowing(!isFollowing));
  document.addEventListener("console:updated", onUpdate);
  document.addEventListener("keydown", onFollowKey);
  window.addEventListener("scroll", onScroll, { passive: true });
}
