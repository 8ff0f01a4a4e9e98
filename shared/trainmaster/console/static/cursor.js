// One cursor over all charts of a page: the pointer, or the arrow keys on a chart, show a time and the values at it.
"use strict";

const LEFT = 70; // as in metric_chart.py
const RIGHT = 988;
const HEIGHT = 146;
const SVG = "http://www.w3.org/2000/svg";

let charts = [];
let times = []; // of all charts, in milliseconds, in order; or steps
let cursorAt = null;

function positionOf(element) { // a time or a step
  return element.matches("data") ? Number(element.value) : Date.parse(element.dateTime);
}

function readChart(section) {
  const svg = section.querySelector("svg.metric");
  const hasSteps = svg.dataset.axis === "step";
  const rows = new Map();
  for (const row of section.querySelectorAll("tbody tr")) {
    const cells = [...row.querySelectorAll("td")].map((cell) => cell.textContent);
    rows.set(positionOf(row.querySelector("time, data")), cells);
  }
  const [start, end] = [svg.dataset.start, svg.dataset.end].map(hasSteps ? Number : Date.parse);
  const name = section.querySelector("h2, h3").textContent;
  const keys = [...section.querySelectorAll(".value")];
  return { svg, rows, start, end, name, keys, hasSteps };
}

function readCharts() {
  charts = [...document.querySelectorAll("section.chart")].map(readChart);
  times = [...new Set(charts.flatMap((chart) => [...chart.rows.keys()]))].sort((a, b) => a - b);
  if (cursorAt !== null) showCursor(nearest(cursorAt));
}

function nearest(at) {
  return times.reduce((best, time) => (Math.abs(time - at) < Math.abs(best - at) ? time : best), times[0]);
}

function positionWords(at) { // a time of the first years is one since the start of a job
  if (charts[0].hasSteps) return `step ${at.toLocaleString("en")}`;
  const days = Math.floor(at / 86400000);
  return (days > 0 && days < 3650 ? `${days} d ` : "") + new Date(at).toISOString().slice(11, 19);
}

function draw(chart) {
  const share = (cursorAt - chart.start) / ((chart.end - chart.start) || 1);
  const x = LEFT + (RIGHT - LEFT) * Math.min(Math.max(share, 0), 1);
  const group = document.createElementNS(SVG, "g");
  const line = document.createElementNS(SVG, "line");
  const label = document.createElementNS(SVG, "text");
  group.setAttribute("class", "cursor");
  for (const [name, value] of Object.entries({ x1: x, x2: x, y1: 10, y2: HEIGHT })) line.setAttribute(name, value);
  label.setAttribute("x", x > RIGHT - 70 ? x - 4 : x + 4);
  label.setAttribute("y", 20);
  if (x > RIGHT - 70) label.setAttribute("text-anchor", "end");
  label.textContent = positionWords(cursorAt);
  group.append(line, label);
  chart.svg.append(group);
}

function removeCursor() {
  for (const group of document.querySelectorAll("g.cursor")) group.remove();
  for (const chart of charts) for (const key of chart.keys) key.textContent = "";
}

function showCursor(at) {
  removeCursor();
  cursorAt = at ?? null;
  if (cursorAt === null) return;
  for (const chart of charts) {
    draw(chart);
    const values = chart.rows.get(cursorAt);
    chart.keys.forEach((key, index) => { key.textContent = values?.[index] ?? "-"; });
  }
}

function onPointer(event) {
  const svg = event.target.closest("svg.metric");
  const chart = charts.find((candidate) => candidate.svg === svg);
  if (!chart || !times.length) return;
  const box = svg.getBoundingClientRect();
  const share = (((event.clientX - box.left) / box.width) * 1000 - LEFT) / (RIGHT - LEFT);
  showCursor(nearest(chart.start + share * (chart.end - chart.start)));
}

function announce(section) {
  const chart = charts.find((candidate) => section.contains(candidate.svg));
  const values = chart.keys.map((key) => `${key.dataset.name} ${key.textContent}`);
  document.getElementById("announcer").textContent = `${positionWords(cursorAt)}: ${chart.name}: ${values.join(", ")}`;
}

function onCursorKey(event) {
  const section = event.target.closest(".chart .drawing")?.closest("section.chart");
  if (!section || !times.length || event.ctrlKey || event.metaKey || event.altKey) return;
  const last = times.length - 1;
  const present = cursorAt === null ? null : times.indexOf(cursorAt);
  const target = {
    ArrowLeft: present === null ? last : Math.max(present - 1, 0),
    ArrowRight: present === null ? 0 : Math.min(present + 1, last),
    Home: 0,
    End: last,
  }[event.key];
  if (event.key === "Escape") showCursor(null);
  if (target === undefined || !event.target.querySelector("svg.metric")) return;
  event.preventDefault();
  showCursor(times[target]);
  section.querySelector("g.cursor").scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
  announce(section);
}

document.addEventListener("pointermove", onPointer);
document.addEventListener("keydown", onCursorKey);
document.addEventListener("console:updated", readCharts);
readCharts();
