// The charts: plotly.js and the figures are stored compressed, and plotly runs under its hash in the page's policy.
async function inflated(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (char) => char.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const probe = document.createElement("i");
probe.hidden = true;
document.body.append(probe);

// A colour in a figure is the name of a property: the page's theme decides what it looks like.
function painted(value) {
  if (typeof value === "string" && value.startsWith("--")) {
    probe.style.color = `var(${value})`;
    return getComputedStyle(probe).color;
  }
  if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map(painted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, painted(part)]));
}

const axis = { gridcolor: "--line", linecolor: "--line", zerolinecolor: "--line", tickfont: { color: "--soft" }, automargin: true };

function look(layout) {
  const title = (own) => (own?.title ? { title: { ...own.title, font: { size: 12, color: "--soft" } } } : {});
  return {
    ...layout,
    autosize: true,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: "--ink" },
    hoverlabel: { bgcolor: "--raised", bordercolor: "--line", font: { color: "--ink", size: 12 }, align: "left" },
    hovermode: "closest",
    dragmode: "zoom",
    xaxis: { ...axis, ...layout.xaxis, ...title(layout.xaxis) },
    yaxis: { ...axis, ...layout.yaxis, ...title(layout.yaxis) },
  };
}

const places = [...document.querySelectorAll(".plot")];
let figures = {};

function draw(place) {
  const spec = figures[place.dataset.figure];
  const config = { responsive: true, displaylogo: false, displayModeBar: false, scrollZoom: false };
  place.querySelector(".waiting")?.remove();
  return window.Plotly.react(place, painted(spec.data), painted(look(spec.layout)), config);
}

function follow(place) {
  if (place.dataset.figure === "roofline") {
    place.on("plotly_click", ({ points }) => document.getElementById("table-kernels").reveal(points[0].customdata[0]));
  }
  if (place.dataset.figure === "icicle") {
    place.on("plotly_click", ({ points }) => {
      const [kind, row] = String(points[0].id).split("-");
      if (kind === "layer") history.replaceState(null, "", `#layers-${row}`);
    });
  }
}

async function start() {
  if (!places.length) return;
  try {
    const [source, specs] = await Promise.all([inflated("plotly"), inflated("figures")]);
    figures = JSON.parse(specs);
    const script = document.createElement("script");
    script.textContent = source;
    document.head.append(script);
    for (const place of places) {
      await draw(place);
      follow(place);
      await new Promise((done) => setTimeout(done));
    }
    document.body.dataset.drawn = "yes";
  } catch (error) {
    for (const waiting of document.querySelectorAll(".waiting")) waiting.textContent = "This browser cannot draw the chart; the tables hold its numbers.";
    console.error(error);
  }
}

function repaint() {
  if (window.Plotly) places.forEach(draw);
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("tracekit-theme", root.dataset.theme); } catch { /* kept for this page only */ }
  repaint();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

const linked = location.hash.match(/^#([a-z_]+)-(\d+)$/);
if (linked) document.getElementById(`table-${linked[1]}`)?.reveal(linked[2]);
start();
