// Selects a range of an axis of the parallel coordinates by dragging. The range is part of the address.
"use strict";

const RANGE_MIN = 0.02; // shorter drags are clicks, which remove the range

function shareAt(area, clientY) {
  const box = area.getBoundingClientRect();
  return Math.min(Math.max(1 - (clientY - box.top) / box.height, 0), 1);
}

function openRange(axis, low, high) {
  const address = new URL(location.href);
  const others = address.searchParams.getAll("brush").filter((brush) => !brush.startsWith(`${axis}~`));
  address.searchParams.delete("brush");
  for (const brush of others) address.searchParams.append("brush", brush);
  if (high - low >= RANGE_MIN) address.searchParams.append("brush", `${axis}~${low.toFixed(3)}~${high.toFixed(3)}`);
  address.hash = "parallel";
  if (address.search === location.search) return;
  location.assign(address);
}

// The position of each trial on an axis, from 0 (bottom) to 1 (top). Trials without a value are below 0.
function positionsOn(area) {
  const index = [...area.parentElement.querySelectorAll("rect.brush-area")].indexOf(area);
  const [top, height] = [area.y.baseVal.value, area.height.baseVal.value];
  return [...area.parentElement.querySelectorAll("polyline.trial-line")].map((line) => {
    const y = Number(line.getAttribute("points").split(" ")[index].split(",")[1]);
    return { line, share: 1 - (y - top) / height };
  });
}

function rangeBetween(begin, end) {
  return [Math.min(begin, end), Math.max(begin, end)];
}

function preview(area, box, positions, low, high) {
  const height = area.height.baseVal.value;
  box.setAttribute("y", area.y.baseVal.value + height * (1 - high));
  box.setAttribute("height", height * (high - low));
  for (const { line, share } of positions) line.classList.toggle("dimmed", share < low || share > high);
}

document.addEventListener("pointerdown", (pressed) => {
  const area = pressed.target.closest("rect.brush-area");
  if (!area) return;
  pressed.preventDefault();
  const begin = shareAt(area, pressed.clientY);
  const positions = positionsOn(area);
  const box = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  box.setAttribute("class", "brush");
  box.setAttribute("x", area.x.baseVal.value + 6);
  box.setAttribute("width", 12);
  area.parentElement.append(box);
  area.parentElement.classList.add("brushing"); // lines are drawn faster, without smooth edges
  const onMove = (moved) => preview(area, box, positions, ...rangeBetween(begin, shareAt(area, moved.clientY)));
  area.setPointerCapture(pressed.pointerId);
  area.addEventListener("pointermove", onMove);
  const stop = () => {
    area.removeEventListener("pointermove", onMove);
    box.remove();
    area.parentElement.classList.remove("brushing");
    for (const { line } of positions) line.classList.remove("dimmed");
  };
  area.addEventListener("pointercancel", stop, { once: true });
  area.addEventListener("pointerup", (released) => {
    const [low, high] = rangeBetween(begin, shareAt(area, released.clientY));
    if (high - low < RANGE_MIN) stop();
    openRange(area.dataset.axis, low, high);
  }, { once: true });
});
