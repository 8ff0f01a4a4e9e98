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

document.addEventListener("pointerdown", (pressed) => {
  const area = pressed.target.closest("rect.brush-area");
  if (!area) return;
  pressed.preventDefault();
  const begin = shareAt(area, pressed.clientY);
  area.setPointerCapture(pressed.pointerId);
  area.addEventListener("pointerup", (released) => {
    const end = shareAt(area, released.clientY);
    openRange(area.dataset.axis, Math.min(begin, end), Math.max(begin, end));
  }, { once: true });
});
