// What all pages share: the search key, the theme, and paper, which is light and shows what is folded.
const repainted = () => document.dispatchEvent(new Event("repainted"));

addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest?.("input, select, textarea")) return;
  const fields = [...document.querySelectorAll("#tables input")];
  const field = fields.find((each) => each.checkVisibility()) ?? fields[0];
  if (!field) return;
  event.preventDefault();
  openTab(field);
  field.focus();
  field.scrollIntoView({ block: "center" });
});

byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("tracekit-theme", root.dataset.theme); } catch { /* kept for this page only */ }
  repainted();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repainted);

let before = null;
addEventListener("beforeprint", () => {
  before = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  repainted();
});
addEventListener("afterprint", () => {
  if (before) document.documentElement.dataset.theme = before;
  else delete document.documentElement.dataset.theme;
  repainted();
});
