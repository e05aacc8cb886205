// Links to rows, the search key, the theme, and printing.
function followAddress() {
  const row = location.hash.slice(1).match(/^([a-z_]+)-(\d+)$/);
  if (row) tables.get(row[1])?.reveal(Number(row[2]));
}
addEventListener("hashchange", followAddress);

addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest?.("input, select, textarea")) return;
  const field = [...document.querySelectorAll("#tables input")].find((each) => each.checkVisibility());
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.scrollIntoView({ block: "center" });
});

byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("tracekit-theme", root.dataset.theme); } catch { /* kept for this page only */ }
});

let before = null;
addEventListener("beforeprint", () => {
  before = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
});
addEventListener("afterprint", () => {
  if (before) document.documentElement.dataset.theme = before;
  else delete document.documentElement.dataset.theme;
});

followAddress();
document.body.dataset.ready = "yes";
