// The box in the heading of the list selects all jobs of the page. It is hidden where scripts do not run.
"use strict";

function boxes() {
  return [...document.querySelectorAll("table.jobs tbody input[name=job]")];
}

function showSelection() {
  const all = document.getElementById("select-all");
  if (!all) return;
  const chosen = boxes().filter((box) => box.checked).length;
  all.checked = chosen > 0 && chosen === boxes().length;
  all.indeterminate = chosen > 0 && !all.checked;
}

document.addEventListener("change", (event) => {
  if (event.target.id === "select-all") for (const box of boxes()) box.checked = event.target.checked;
  else showSelection();
});
document.addEventListener("console:updated", showSelection);
showSelection();
