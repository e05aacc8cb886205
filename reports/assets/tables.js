// Sorting, searching, filtering and folding. Without this script the tables are complete, in the order of the analysis.
const tables = new Map();

function interactive(box) {
  const table = box.querySelector("table");
  const body = table.tBodies[0];
  const headers = [...table.tHead.rows[0].cells];
  const rows = [...body.rows];
  const search = box.querySelector("input");
  const bound = box.querySelector("select");
  const count = box.querySelector(".count");
  const byIndex = new Map(rows.map((row) => [row.dataset.row, row]));
  const tree = table.classList.contains("tree") ? folding(rows, byIndex, show) : null;
  let sorted = null;
  let texts = null;
  let allowed = null;

  function matching() {
    const words = search ? search.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
    if (words.length && !texts) texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const wanted = bound ? bound.value : "";
    const narrowed = Boolean(words.length || wanted || allowed);
    const fits = (row) => words.every((word) => texts.get(row).includes(word))
      && (!wanted || row.dataset.bound === wanted) && (!allowed || allowed.has(Number(row.dataset.row)));
    return { narrowed, fits };
  }

  function show() {
    const { narrowed, fits } = matching();
    const flat = Boolean(narrowed || sorted);
    table.classList.toggle("flat", flat);
    let found = 0;
    for (const row of rows) {
      const fit = fits(row);
      row.hidden = !fit || (!flat && tree !== null && tree.folded(row));
      found += fit;
    }
    const all = `${rows.length.toLocaleString("en")} row${rows.length === 1 ? "" : "s"}`;
    count.textContent = found === rows.length ? all : `${found.toLocaleString("en")} of ${all}`;
  }

  function sort(column) {
    const header = headers[column];
    const numeric = rows.some((row) => row.cells[column].dataset.value);
    const orders = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
    sorted = orders[orders.indexOf(header.getAttribute("aria-sort")) + 1] ?? null;
    for (const other of headers) other.removeAttribute("aria-sort");
    if (sorted) header.setAttribute("aria-sort", sorted);
    body.append(...(sorted ? [...rows].sort(comparing(column, numeric, sorted === "descending" ? -1 : 1)) : rows));
    show();
  }

  function reveal(index) {
    const row = byIndex.get(String(index));
    if (!row) return false;
    tree?.unfold(row);
    if (search) search.value = "";
    if (bound) bound.value = "";
    if (allowed && !allowed.has(index)) allowed = null;
    show();
    document.querySelectorAll("tr.found").forEach((other) => other.classList.remove("found"));
    row.classList.add("found");
    openTab(box);
    const folded = row.closest("details");
    if (folded) folded.open = true;
    row.scrollIntoView({ block: "center" });
    return true;
  }

  function revealName(name) {
    const row = rows.find((each) => nameOf(each.cells[0]) === name);
    return Boolean(row) && reveal(Number(row.dataset.row));
  }

  function restrict(indices) {
    allowed = indices;
    show();
  }

  headers.forEach((header, column) => header.querySelector("button").addEventListener("click", () => sort(column)));
  search?.addEventListener("input", show);
  bound?.addEventListener("change", show);
  show();
  return { box, reveal, revealName, restrict, headers, shown: () => [...body.rows].filter((row) => !row.hidden) };
}

const nameOf = (cell) => cell.title || (cell.querySelector(".long") ?? cell).textContent.trim();

function comparing(column, numeric, sign) {
  const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  return (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (!numeric) return sign * x.localeCompare(y, "en", { numeric: true });
    return x === "" || y === "" ? (x === "") - (y === "") : sign * (x - y);
  };
}

for (const box of document.querySelectorAll(".tabular")) tables.set(box.dataset.table, interactive(box));
