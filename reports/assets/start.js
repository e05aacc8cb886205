// What the page does first, what its address asks for, its theme, and its printing.
let layersShown = null;

function followLink(link) {
  const row = link.match(/^([a-z_]+)-(\d+)$/);
  if (row && tables.has(row[1])) {
    const found = tables.get(row[1]).reveal(Number(row[2]));
    if (found) history.replaceState(null, "", `#${link}`);
    return found;
  }
  const [kind, name] = link.split(/=(.*)/s);
  if (kind === "layer" || kind === "type") return Boolean(layersShown?.show(kind, name)) && byId("time").scrollIntoView();
  const table = { op: "ops", kernel: "kernels" }[kind];
  return Boolean(table && tables.get(table)?.revealName(name));
}

function followAddress() {
  let link = location.hash.slice(1);
  try { link = decodeURIComponent(link); } catch { /* not ours */ }
  if (link) followLink(link);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='#']")?.getAttribute("href").slice(1);
  if (link && followLink(link)) event.preventDefault();
});
addEventListener("hashchange", followAddress);

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
  repaint();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

// Paper is light, narrow, and shows what is folded.
let before = null;
addEventListener("beforeprint", () => {
  before = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  places.forEach(drawNow);
  repaint();
});
addEventListener("afterprint", () => {
  if (before) document.documentElement.dataset.theme = before;
  else delete document.documentElement.dataset.theme;
  repaint();
});

async function start() {
  try {
    figures = JSON.parse(await inflated("figures"));
    if (figures.icicle) layersShown = icicle(figures.icicle);
    followAddress();
    document.body.dataset.ready = String(Math.round(performance.now()));
    await drawWhenNear();
  } catch (error) {
    cannotDraw(error);
  }
}
start();
