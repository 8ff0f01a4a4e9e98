// The search of the site: ranks passages by any of the words of a query, pages for users before internals.
// search-index.js, which `make docs` writes, sets `searchIndex`. Nothing is fetched: the site needs no web server.
"use strict";

const SOURCE = document.currentScript?.src; // empty for a test that adds the text of this script
const SITE = SOURCE ? new URL("../../", SOURCE) : null;
const RESULTS_MAX = 10;
const TITLE_WEIGHT = 2.5; // of a word in a heading
const PAGE_WEIGHT = 1.5; // of a word in the title of the page
const PREFIX_WEIGHT = 0.4; // of a word that only begins with the word of the query
const SYNONYM_WEIGHT = 0.8;
const INTERNAL_WEIGHT = 0.45; // of pages for those who change Trainmaster
const SATURATION = 1.2; // a word that occurs often counts little more than one that occurs once
const LENGTH_MEAN = 30; // words of a passage
const STOP_WORDS = new Set(
  ("a an and are as at be but by can did do does for from get got has have how i if in into is it its me my of on or" +
    " our so some that the their them then there these this to want was we what when where which who why will with" +
    " you your").split(" "),
);

// Returns the words of a text, in lower case. A name such as bootDiskSizeGb counts as a whole and by its parts.
function wordsOf(text) {
  const words = [];
  for (const token of text.match(/[\p{L}\p{N}]+/gu) ?? []) {
    words.push(token.toLowerCase());
    const parts = token.match(/\p{Lu}?\p{Ll}+|\p{Lu}+(?!\p{Ll})|\p{N}+/gu) ?? [];
    if (parts.length > 1) words.push(...parts.map((part) => part.toLowerCase()));
  }
  return words;
}

// Returns a word without its ending, so that "failed", "fails" and "failing" are one word.
function stem(word) {
  const short = word.length > 4 ? word.replace(/(?:ies|ing|ed|es|s|e)$/, "") : word.replace(/s$/, "");
  return (short.length > 2 ? short : word).replace(/(\p{L})\1$/u, "$1");
}

function add(postings, words, passage, weight) {
  for (const word of words) {
    const term = stem(word);
    if (!postings.has(term)) postings.set(term, new Map());
    const counts = postings.get(term);
    counts.set(passage, (counts.get(passage) ?? 0) + weight);
  }
}

// Returns what `rank` needs: for each term the passages that have it, and the terms of each synonym.
function prepare(index) {
  const postings = new Map();
  const lengths = index.passages.map(([section, text], passage) => {
    const { title, page } = index.sections[section];
    const words = wordsOf(text);
    add(postings, words, passage, 1);
    add(postings, new Set(wordsOf(title)), passage, TITLE_WEIGHT);
    add(postings, new Set(wordsOf(index.pages[page].title)), passage, PAGE_WEIGHT);
    return words.length;
  });
  const synonyms = new Map();
  for (const group of index.synonyms) {
    const terms = group.map((phrase) => wordsOf(phrase).map(stem));
    for (const [first, ...rest] of terms) if (rest.length === 0) synonyms.set(first, terms.flat());
  }
  return { index, postings, lengths, synonyms };
}

// Returns the terms of the index that a term of a query means, with their weights.
function meanings(term, { postings, synonyms }) {
  const found = new Map();
  for (const word of postings.keys()) {
    if (term.length > 2 && word.startsWith(term)) found.set(word, PREFIX_WEIGHT);
  }
  for (const word of synonyms.get(term) ?? []) found.set(word, SYNONYM_WEIGHT);
  found.set(term, 1);
  return found;
}

function scoresOf(term, prepared) {
  const { postings, lengths } = prepared;
  const scores = new Map();
  for (const [word, weight] of meanings(term, prepared)) {
    const passages = postings.get(word) ?? new Map();
    const rarity = Math.log(1 + (lengths.length - passages.size + 0.5) / (passages.size + 0.5));
    for (const [passage, count] of passages) {
      const norm = SATURATION * (0.6 + (0.4 * lengths[passage]) / LENGTH_MEAN);
      const score = (weight * rarity * count * (SATURATION + 1)) / (count + norm);
      scores.set(passage, Math.max(scores.get(passage) ?? 0, score));
    }
  }
  return scores;
}

// Returns the best sections, one of each page, best first: {page, section, text}.
function rank(prepared, query) {
  const { index } = prepared;
  const all = query.match(/[\p{L}\p{N}]+/gu)?.map((word) => stem(word.toLowerCase())) ?? [];
  const telling = all.filter((word) => !STOP_WORDS.has(word));
  const terms = [...new Set(telling.length ? telling : all)];
  const sums = new Map();
  const matched = new Map();
  for (const term of terms) {
    for (const [passage, score] of scoresOf(term, prepared)) {
      sums.set(passage, (sums.get(passage) ?? 0) + score);
      matched.set(passage, (matched.get(passage) ?? 0) + 1);
    }
  }
  const best = new Map();
  for (const [passage, sum] of sums) {
    const section = index.passages[passage][0];
    const page = index.sections[section].page;
    const audience = index.pages[page].internal ? INTERNAL_WEIGHT : 1;
    const score = (sum * audience * matched.get(passage)) / terms.length;
    if (score > (best.get(page)?.score ?? 0)) best.set(page, { page, section, passage, score });
  }
  return [...best.values()].sort((a, b) => b.score - a.score).slice(0, RESULTS_MAX);
}

function resultOf({ page, section, passage }, { index }) {
  const { title, anchor } = index.sections[section];
  const link = document.createElement("a");
  link.href = new URL(index.pages[page].location + (anchor ? `#${anchor}` : ""), SITE).href;
  const head = document.createElement("strong");
  head.textContent = title === index.pages[page].title ? title : `${title} – ${index.pages[page].title}`;
  const text = document.createElement("small");
  text.textContent = index.passages[passage][1].slice(0, 160);
  link.append(head, text);
  const item = document.createElement("li");
  item.append(link);
  return item;
}

// Loads the index when somebody searches for the first time.
function load() {
  return new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = new URL("docs/assets/search-index.js", SITE).href;
    script.onload = () => resolve(prepare(window.searchIndex));
    document.head.append(script);
  });
}

function install(header) {
  const form = document.createElement("form");
  form.className = "site-search";
  form.setAttribute("role", "search");
  form.innerHTML =
    '<input type="search" placeholder="Search" aria-label="Search the documentation" autocomplete="off">' +
    '<ol aria-label="Results" aria-live="polite"></ol>';
  const [field, list] = form.children;
  let loading = null;
  const show = async () => {
    loading ??= load();
    const prepared = await loading;
    const results = field.value.trim() ? rank(prepared, field.value) : [];
    list.replaceChildren(...results.map((result) => resultOf(result, prepared)));
    if (field.value.trim() && !results.length) list.textContent = "Nothing found";
  };
  field.addEventListener("input", show);
  field.addEventListener("focus", show);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    list.querySelector("a")?.click();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") list.replaceChildren();
    if (event.key === "/" && !event.target.closest("input, textarea")) {
      event.preventDefault();
      field.focus();
    }
  });
  document.addEventListener("click", (event) => {
    if (!form.contains(event.target)) list.replaceChildren();
  });
  header.append(form);
}

if (SITE) {
  const begin = () => {
    const header = document.querySelector(".md-header__inner");
    if (header) install(header);
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
}
