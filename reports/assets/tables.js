"use strict";

// Sorting, searching and folding of the tables. Without this script they are complete, in the order of the analysis.
for (const box of document.querySelectorAll(".tabular")) {
  const table = box.querySelector("table");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const search = box.querySelector("input");
  const bound = box.querySelector("select");
  const closed = new Set();
  let sorted = null;

  const text = (row) => row.textContent.toLowerCase();
  const texts = search ? rows.map(text) : [];
  const byIndex = new Map(rows.map((row) => [row.dataset.row, row]));
  const parent = (row) => byIndex.get(row.dataset.parent);
  const parents = new Set(rows.map((row) => row.dataset.parent));
  const upTo = (depth) => rows.filter((row) => row.dataset.depth <= depth).length;

  function underClosed(row) {
    for (let above = parent(row); above; above = parent(above)) if (closed.has(above)) return true;
    return false;
  }

  function show() {
    const words = search ? search.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
    const wanted = bound ? bound.value : "";
    const flat = Boolean(words.length || wanted || sorted);
    table.classList.toggle("flat", flat);
    let count = 0;
    rows.forEach((row, at) => {
      const matches = words.every((word) => texts[at].includes(word)) && (!wanted || row.dataset.bound === wanted);
      row.hidden = !matches || (!flat && underClosed(row));
      count += matches;
    });
    box.querySelector(".count").textContent = count === rows.length ? `${count} row${count === 1 ? "" : "s"}` : `${count} of ${rows.length} rows`;
  }

  function sort(column, header) {
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const numeric = rows.some((row) => row.cells[column].dataset.value);
    const next = { null: numeric ? "descending" : "ascending", descending: numeric ? "ascending" : null, ascending: numeric ? null : "descending" };
    const order = next[header.getAttribute("aria-sort")];
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    sorted = order;
    if (order) header.setAttribute("aria-sort", order);
    const sign = order === "descending" ? -1 : 1;
    const compare = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (!numeric) return sign * x.localeCompare(y, "en", { numeric: true });
      return x === "" || y === "" ? (x === "") - (y === "") : sign * (x - y);
    };
    body.append(...(order ? [...rows].sort(compare) : rows));
    show();
  }

  [...table.tHead.rows[0].cells].forEach((header, column) =>
    header.querySelector("button").addEventListener("click", () => sort(column, header)));
  search?.addEventListener("input", show);
  bound?.addEventListener("change", show);

  if (table.classList.contains("tree")) {
    let open = 0;
    while (open < 64 && upTo(open + 1) <= 48) open += 1;
    for (const row of rows) {
      if (!parents.has(row.dataset.row)) continue;
      if (row.dataset.depth >= open) closed.add(row);
      const twist = document.createElement("button");
      twist.type = "button";
      twist.className = "twist";
      twist.setAttribute("aria-label", `Layers in ${row.querySelector(".long").textContent}`);
      const mark = () => {
        twist.textContent = closed.has(row) ? "▸" : "▾";
        twist.setAttribute("aria-expanded", String(!closed.has(row)));
      };
      twist.addEventListener("click", () => {
        if (!closed.delete(row)) closed.add(row);
        mark();
        show();
      });
      mark();
      row.querySelector(".twist").replaceWith(twist);
    }
    show();
  }

  box.reveal = (index) => {
    const row = byIndex.get(String(index));
    if (!row) return;
    for (let above = parent(row); above; above = parent(above)) if (closed.has(above)) above.querySelector("button.twist").click();
    if (search) search.value = "";
    if (bound) bound.value = "";
    show();
    document.querySelectorAll("tr.found").forEach((other) => other.classList.remove("found"));
    row.classList.add("found");
    row.scrollIntoView({ block: "center" });
  };
}

for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
    } catch {
      button.textContent = "selected";
    }
  });
}

addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input, select")) return;
  event.preventDefault();
  document.querySelector("#tables input")?.focus();
});

addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
