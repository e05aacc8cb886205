// Code and tables to the clipboard, tables to a file.
async function copy(text, button) {
  const said = button.textContent;
  let answer = "copied";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.body.appendChild(make("textarea", { value: text }));
    field.select();
    if (!document.execCommand("copy")) answer = "not allowed here";
    field.remove();
  }
  button.textContent = answer;
  setTimeout(() => { button.textContent = said; }, 1500);
}

function valuesOf(cell) {
  if (cell.dataset.value !== undefined) return cell.dataset.value;
  const whole = nameOf(cell);
  return whole === "–" ? "" : whole;
}

// The rows that are shown, in their order, after a line of column names with their units.
function cellsOf({ headers, shown }) {
  const names = headers.map((header) => header.querySelector("button").textContent.replace(/\s+/g, " ").trim());
  return [names, ...shown().map((row) => [...row.cells].map(valuesOf))];
}

// A spreadsheet takes what starts like this for a formula.
const tame = (text) => (/^[=+@\t\r-]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text);
const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

function asCsv(view) {
  return cellsOf(view).map((row) => row.map((cell) => quoted(tame(cell))).join(",")).join("\n") + "\n";
}

function asTabs(view) {
  return cellsOf(view).map((row) => row.map((cell) => tame(cell).replace(/\s/g, " ")).join("\t")).join("\n") + "\n";
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

for (const button of document.querySelectorAll(".code .copy")) {
  button.addEventListener("click", () => copy(button.parentElement.querySelector("code").textContent, button));
}

for (const [name, view] of tables) {
  const [toClipboard, toFile] = view.box.querySelectorAll(".take button");
  toClipboard.addEventListener("click", () => copy(asTabs(view), toClipboard));
  toFile.addEventListener("click", () => download(`${name}.csv`, asCsv(view)));
}
