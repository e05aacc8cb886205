// What the page does first, and what its address asks for.
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
  if (kind === "moves") return showMoves(name);
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

document.addEventListener("repainted", repaint);
addEventListener("beforeprint", () => places.forEach(drawNow));

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
