// The tree of layers: boxes as wide as their time, moved through with the pointer or the keys.
const BOX_HEIGHT = 28;
const THINNEST = 1.5;

function icicle(data) {
  const [stage, crumbs, picked] = [byId("icicle"), byId("icicle-crumbs"), byId("icicle-picked")];
  const [search, found] = [byId("icicle-search"), byId("icicle-found")];
  const [phases, byType] = [byId("icicle-phase"), document.querySelector("[name=icicle-by][value=type]")];
  let boxes = [];
  let root, zoomed, at;
  let matching = null;

  function place(each, left, width, depth) {
    if (width * stage.clientWidth < THINNEST) return;
    boxes.push({ each, left, width, depth });
    let from = left;
    for (const below of each.children) {
      const part = (width * below.ns) / each.ns;
      place(below, from, part, depth + 1);
      from += part;
    }
  }

  function box({ each, left, width, depth }, index) {
    const element = make("div", { className: `box ${each.kind} ${data.bounds[each.bound]}`, id: `box-${index}`, role: "treeitem" });
    if (matching) element.classList.add(matching.has(each) ? "hit" : "miss");
    element.ariaLevel = depth + 1;
    element.ariaSelected = String(each === at);
    element.ariaLabel = `${labelOf(each)} ${percent(each.ns / root.ns)}`;
    element.style = `left:${100 * left}%;width:${100 * width}%;top:${depth * BOX_HEIGHT}px`;
    const pixels = width * stage.clientWidth;
    if (pixels > 34) element.append(make("b", { textContent: labelOf(each) }));
    if (pixels > 110) element.append(" ", make("span", { textContent: percent(each.ns / root.ns) }));
    return element;
  }

  function draw() {
    seek();
    boxes = [];
    place(zoomed, 0, 1, 0);
    stage.style.height = `${BOX_HEIGHT * (1 + Math.max(...boxes.map((each) => each.depth)))}px`;
    stage.replaceChildren(...boxes.map(box));
    const path = [];
    for (let each = zoomed; each; each = each.above) path.unshift(each);
    crumbs.replaceChildren(...path.map(crumb));
    mark(at);
  }

  // What is searched for, and its share: a box inside a matching box is the same time.
  function seek() {
    const word = search.value.trim().toLowerCase();
    matching = word ? new Set(everything(zoomed).filter((each) => namesOf(each).includes(word))) : null;
    const outermost = [...(matching ?? [])].filter((each) => !above(each, zoomed).some((outer) => matching.has(outer)));
    const ns = outermost.reduce((sum, each) => sum + each.ns, 0);
    const boxes = `${matching?.size.toLocaleString("en")} box${matching?.size === 1 ? "" : "es"}`;
    found.textContent = matching ? `${boxes}, ${duration(ns)}, ${percent(ns / zoomed.ns)} of ${zoomed.label}` : "";
  }

  function next() {
    const hits = boxes.map((box) => box.each).filter((each) => matching?.has(each));
    if (hits.length) mark(hits[(hits.indexOf(at) + 1) % hits.length]);
  }

  function crumb(each, index, path) {
    const button = make("button", { type: "button", textContent: each.label, onclick: () => zoom(each) });
    if (index === path.length - 1) button.ariaCurrent = "true";
    return make("li", {}, button);
  }

  function mark(each) {
    at = each;
    boxes.forEach((box, index) => {
      const element = stage.children[index];
      const active = box.each === each;
      if (element.ariaSelected !== String(active)) element.ariaSelected = String(active);
      if (active) stage.setAttribute("aria-activedescendant", element.id);
    });
    describe(each);
  }

  function describe(each) {
    const bound = data.bounds[each.bound];
    const times = each.rows.length > 1 ? `${each.rows.length} × ` : "";
    const type = each.type && each.type !== each.name ? ` ${each.type}` : "";
    const facts = `${duration(each.ns)}, ${percent(each.ns / root.ns)} of the busy time, ${each.count.toLocaleString("en")} launch${each.count === 1 ? "" : "es"}`;
    picked.replaceChildren(
      make("p", { className: "what" }, times, make("bdi", { textContent: each.name }), make("small", { textContent: type })),
      make("p", { className: "facts-line" }, make("i", { className: `swatch ${bound}` }), `${bound} · ${facts}`),
      make("p", { className: "actions" }, ...actions(each)),
    );
  }

  function actions(each) {
    const target = rowOf(each, data);
    const link = target ? [make("a", { href: `#${target}`, textContent: "its row" })] : [];
    const only = make("button", { type: "button", textContent: "only this in the tables", onclick: () => narrow(labelOf(each), inside(each)) });
    return [...link, only];
  }

  function zoom(each) {
    [zoomed, at] = [each, each];
    draw();
    const link = each.kind === "layer" && each.above ? `#${byType.checked ? "type" : "layer"}=${encodeURIComponent(each.name)}` : "";
    history.replaceState(null, "", location.href.split("#")[0] + link);
  }

  function rebuild() {
    root = layerTree(data, { byType: byType.checked, phase: phases ? Number(phases.value) : -1 });
    [zoomed, at] = [root, root];
    draw();
  }

  function across(step) {
    const own = boxes.find((box) => box.each === at);
    const level = boxes.filter((box) => box.depth === own.depth);
    return level[level.indexOf(own) + step]?.each;
  }

  const drawn = (each) => boxes.some((box) => box.each === each);
  const moves = {
    ArrowRight: () => across(1),
    ArrowLeft: () => across(-1),
    ArrowDown: () => at.children.find(drawn),
    ArrowUp: () => (at === zoomed ? null : at.above),
    Home: () => zoomed,
  };

  stage.addEventListener("keydown", (event) => {
    const acts = { Enter: () => zoom(at), Escape: () => zoomed.above && zoom(zoomed.above) };
    if (!(event.key in moves) && !(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]?.();
    const to = moves[event.key]?.();
    if (to) mark(to);
  });
  search.addEventListener("input", draw);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") next();
    if (event.key === "Escape") search.value = "", draw();
  });
  const under = (event) => boxes[[...stage.children].indexOf(event.target.closest(".box"))]?.each;
  stage.addEventListener("click", (event) => {
    const each = under(event);
    if (each) zoom(each === zoomed && each.above ? each.above : each);
  });
  stage.addEventListener("pointerover", (event) => under(event) && describe(under(event)));
  stage.addEventListener("pointerleave", () => describe(at));
  phases?.addEventListener("change", rebuild);
  document.querySelectorAll("[name=icicle-by]").forEach((input) => input.addEventListener("change", rebuild));
  let width = stage.clientWidth;
  new ResizeObserver(() => {
    if (stage.clientWidth === width) return;
    width = stage.clientWidth;
    draw();
  }).observe(stage);
  rebuild();

  return {
    show(kind, name) {
      const wanted = kind === "type";
      document.querySelector(`[name=icicle-by][value=${wanted ? "type" : "instance"}]`).checked = true;
      if (phases) phases.value = "-1";
      rebuild();
      const found = everything(root).find((each) => each.kind === "layer" && each.name === name);
      if (found) zoom(found);
      return found;
    },
  };
}

const labelOf = (each) => (each.rows.length > 1 ? `${each.rows.length} × ${each.label}` : each.label);

const namesOf = (each) => [each.name, each.label, each.type ?? ""].join("\n").toLowerCase();

function above(each, top) {
  return each === top || !each.above ? [] : [each.above, ...above(each.above, top)];
}

function rowOf(each, data) {
  if (each.kind === "layer") return each.rows.length > 1 ? typeRow(data, each.name) : `layers-${each.rows[0]}`;
  return each.row >= 0 ? `${each.kind}s-${each.row}` : "";
}

function typeRow(data, name) {
  const row = data.types.indexOf(name);
  return row >= 0 ? `layer_types-${row}` : "";
}

function everything(each) {
  return [each, ...each.children.flatMap(everything)];
}

// The rows of what is in it, by table; of an op or kernel also those around it, up to its layer.
function inside(each) {
  const rows = { layers: new Set(), ops: new Set(), kernels: new Set() };
  const add = (part) => (part.kind === "layer" ? part.rows.forEach((row) => rows.layers.add(row)) : rows[`${part.kind}s`]?.add(part.row));
  everything(each).forEach(add);
  for (let part = each; part && part.kind !== "layer"; part = part.above) if (part.above) add(part.above);
  return rows;
}
