// Charts of Plotly.js. It and the figures are stored compressed; it runs under its hash in the policy.
const probe = document.body.appendChild(make("i", { hidden: true }));
const places = [...document.querySelectorAll(".plot")];
let figures = {};

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

const axis = { gridcolor: "--line", linecolor: "--line", zerolinecolor: "--line", tickfont: { color: "--soft" } };

function look(layout, narrow) {
  const title = (own) => (own?.title ? { title: { ...own.title, font: { size: 12, color: "--soft" } } } : {});
  return {
    ...layout,
    autosize: true,
    margin: { ...layout.margin, l: narrow ? Math.min(layout.margin.l, 74) : layout.margin.l },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 10.5 : 12, color: "--ink" },
    hoverlabel: { bgcolor: "--raised", bordercolor: "--line", font: { color: "--ink", size: 12 }, align: "left" },
    hovermode: "closest",
    dragmode: "zoom",
    xaxis: { ...axis, ...layout.xaxis, ...title(layout.xaxis) },
    yaxis: { ...axis, ...layout.yaxis, ...title(layout.yaxis) },
  };
}

function traces(place) {
  const spec = figures[place.dataset.figure];
  const kind = document.querySelector(`[name=${place.dataset.figure}-of]:checked`)?.value;
  if (spec.steps) return spec.steps[stepShown ?? spec.shown].data;
  return chosenMoves()?.traces ?? spec.kinds[kind];
}

function draw(place) {
  const { layout } = figures[place.dataset.figure];
  const config = { responsive: true, displaylogo: false, displayModeBar: false, scrollZoom: false };
  place.querySelector(".waiting")?.remove();
  place.style.minHeight = `${layout.height}px`;
  return window.Plotly.react(place, painted(traces(place)), painted(look(layout, place.clientWidth < 600)), config);
}

function repaint() {
  if (window.Plotly) places.filter((place) => place.data).forEach(draw);
}

function follow(place) {
  if (place.dataset.figure === "timeline") followTimeline(place);
  if (place.dataset.figure !== "roofline") return;
  const kind = () => document.querySelector("[name=roofline-of]:checked").value;
  const table = () => (chosenMoves() ? "roofline_moves" : kind());
  place.on("plotly_click", ({ points }) => followLink(`${table()}-${points[0].customdata[0]}`));
  document.querySelectorAll("[name=roofline-of]").forEach((input) => input.addEventListener("change", () => draw(place)));
}

// Plotly takes a while to start: not before a plot comes near, or goes on paper.
let source = null;

function drawNow(place) {
  if (place.data || !source) return;
  if (!window.Plotly) document.head.append(make("script", { textContent: source }));
  draw(place);
  follow(place);
  if (places.every((each) => each.data)) document.body.dataset.drawn = "yes";
}

async function drawWhenNear() {
  if (!places.length) {
    document.body.dataset.drawn = "yes";
    return;
  }
  source = await inflated("plotly");
  const watcher = new IntersectionObserver((seen) => {
    for (const { target } of seen.filter((each) => each.isIntersecting)) drawNow(target);
  }, { rootMargin: "400px" });
  places.forEach((place) => watcher.observe(place));
}

function cannotDraw(error) {
  for (const waiting of document.querySelectorAll(".waiting")) waiting.textContent = "This browser cannot draw the chart; the tables hold its numbers.";
  console.error(error);
}
