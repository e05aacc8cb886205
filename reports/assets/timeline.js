// The timeline: names on its bars, buttons that zoom, and buttons that go from step to step.
const NAMED_PX = 36, MOST_NAMES = 400;
let stepShown = null;

// Black or white, whichever has the larger contrast with a colour such as rgb(1, 2, 3).
function inkOn(colour) {
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = colour.match(/[\d.]+/g).map((part) => linear(part / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

// A bar is four points, the last of which is a break; its hover text begins with its escaped name.
function wideBars(place) {
  const { xaxis, yaxis } = place._fullLayout;
  const ends = [xaxis._offset, xaxis._offset + xaxis._length];
  const across = (value) => Math.min(Math.max(xaxis._offset + xaxis.l2p(value), ends[0]), ends[1]);
  const bars = [];
  for (const { x, y, text, line } of place.data) {
    for (let at = 0; at < x.length; at += 4) {
      const left = across(x[at]), width = across(x[at + 2]) - left;
      if (width >= NAMED_PX) bars.push({ left, width, middle: yaxis._offset + yaxis.l2p(y[at]), name: text[at], line });
    }
  }
  return bars.sort((one, other) => other.width - one.width).slice(0, MOST_NAMES);
}

function nameBars(place) {
  place.querySelector(".names")?.remove();
  const names = make("div", { className: "names", ariaHidden: "true" });
  const plain = { "&lt;": "<", "&gt;": ">", "&amp;": "&" };
  for (const { left, width, middle, name, line } of wideBars(place)) {
    const text = name.slice(3, name.indexOf("</b>")).replace(/&(lt|gt|amp);/g, (each) => plain[each]);
    const label = names.appendChild(make("span", { textContent: text }));
    Object.assign(label.style, {
      left: `${left}px`, width: `${width}px`, top: `${middle - line.width / 2}px`,
      lineHeight: `${line.width}px`, color: inkOn(line.color),
    });
  }
  // Below the layer of the hover labels.
  place.querySelector(".main-svg").after(names);
}

// How the range shown changes, from its middle and length.
const views = {
  closer: (middle, length) => [middle - length / 4, middle + length / 4],
  wider: (middle, length) => [middle - length, middle + length],
  earlier: (middle, length) => [middle - 0.9 * length, middle + 0.1 * length],
  later: (middle, length) => [middle - 0.1 * length, middle + 0.9 * length],
};

for (const button of document.querySelectorAll("[data-view]")) {
  button.addEventListener("click", () => {
    const place = byId("plot-timeline");
    if (!place.layout) return;
    const view = views[button.dataset.view];
    const [from, to] = place.layout.xaxis.range;
    window.Plotly.relayout(place, view ? { "xaxis.range": view((from + to) / 2, to - from) } : { "xaxis.autorange": true });
  });
}

function showStep(by) {
  const { steps, shown } = figures.timeline ?? {};
  const next = (stepShown ?? shown) + by;
  if (!steps?.[next]) return;
  stepShown = next;
  byId("timeline-step").textContent = steps[next].title;
  byId("note-timeline").textContent = steps[next].note;
  markEnds();
  if (byId("plot-timeline").data) draw(byId("plot-timeline"));
}

function markEnds() {
  const { steps, shown } = figures.timeline;
  for (const button of document.querySelectorAll("[data-step]")) {
    button.ariaDisabled = String(!steps[(stepShown ?? shown) + Number(button.dataset.step)]);
  }
}

for (const button of document.querySelectorAll("[data-step]")) {
  button.addEventListener("click", () => showStep(Number(button.dataset.step)));
}

function followTimeline(place) {
  markEnds();
  nameBars(place);
  place.on("plotly_afterplot", () => nameBars(place));
}
