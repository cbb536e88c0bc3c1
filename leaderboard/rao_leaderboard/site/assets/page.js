"use strict";
// Sorting, filtering and links into both. Without this file the tables are in the order of their ranks.

const filters = document.getElementById("filters");
const boards = [...document.querySelectorAll(".board")];

function compare(kind, a, b) {
  return kind === "number" ? Number(a) - Number(b) : a.localeCompare(b, "en", { sensitivity: "base" });
}

function valueOf(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value ?? cell.textContent.trim();
}

function sortBy(header, direction) {
  const table = header.closest("table");
  const column = header.cellIndex;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const sign = direction === "descending" ? -1 : 1;
  rows.sort((a, b) => sign * compare(header.dataset.sort, valueOf(a, column), valueOf(b, column)));
  body.append(...rows);
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", direction);
}

for (const header of document.querySelectorAll(".board th[data-sort]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...header.childNodes);
  header.append(button);
  button.addEventListener("click", () => {
    const now = header.getAttribute("aria-sort");
    sortBy(header, now === "ascending" ? "descending" : "ascending");
  });
}

function apply() {
  const wanted = Object.fromEntries(new FormData(filters));
  let shown = 0;
  for (const board of boards) {
    const fits = !wanted.family || board.dataset.family === wanted.family;
    let here = 0;
    for (const row of board.querySelectorAll("tbody tr")) {
      const keep = (!wanted.kind || row.dataset.kind === wanted.kind)
        && (!wanted.context || row.dataset.context === wanted.context)
        && (wanted.budget === "" || Number(row.dataset.steps) <= 1.01 * Number(wanted.budget));
      row.hidden = !keep;
      here += keep;
    }
    board.hidden = !fits || !here;
    shown += board.hidden ? 0 : here;
  }
  document.getElementById("shown").textContent = `${shown} rows`;
}

function remember() {
  const chosen = [...new FormData(filters)].filter(([, value]) => value !== "");
  history.replaceState(null, "", chosen.length ? `#?${new URLSearchParams(chosen)}` : location.pathname + location.search);
}

function recall() {
  if (location.hash.startsWith("#?")) {
    for (const [name, value] of new URLSearchParams(location.hash.slice(2))) {
      const field = filters.elements.namedItem(name);
      if (field && [...field.options].some((option) => option.value === value)) field.value = value;
    }
  } else if (location.hash.length > 1) {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target instanceof HTMLDetailsElement) target.open = true;
  }
  apply();
}

filters.hidden = false;
filters.addEventListener("change", () => { remember(); apply(); });
filters.addEventListener("reset", () => setTimeout(() => { remember(); apply(); }));
filters.addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", recall);
recall();
