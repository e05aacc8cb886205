// The tree that the icicle shows, from the columns of the analysis: layers, in them ops, in these kernels.
function layerTree(data, { byType, phase }) {
  const root = node(null, { kind: "run", name: "the run", label: "the run" });
  const layers = data.layers.path.map(() => null);
  data.layers.path.forEach((path, row) => {
    const above = layers[data.layers.parent[row]] ?? root;
    layers[row] = byType ? typeNode(above, data.layers, row) : child(above, row, { kind: "layer", name: path, label: data.layers.label[row] });
    layers[row].type = data.layers.type[row];
    layers[row].rows.push(row);
  });
  addLeaves(data, layers, root, phase);
  if (phase < 0) for (const each of new Set(layers)) each.times = boundsOfRows(data.layers, each.rows);
  const top = settled(root, byType);
  if (top.children.length !== 1 || top.children[0].kind !== "layer") return top;
  top.children[0].above = null;
  return top.children[0];
}

function node(above, properties) {
  return { above, rows: [], children: new Map(), ns: 0, count: 0, times: [0, 0, 0, 0, 0, 0], ...properties };
}

function child(above, key, properties) {
  if (!above.children.has(key)) above.children.set(key, node(above, properties));
  return above.children.get(key);
}

function typeNode(above, layers, row) {
  const name = layers.type[row] || layers.label[row].replace(/\d+/g, "*");
  return child(above, `type ${name}`, { kind: "layer", name, label: name });
}

function addLeaves(data, layers, root, phase) {
  const { leaves, ops, kernels } = data;
  for (let at = 0; at < leaves.ns.length; at += 1) {
    if (phase >= 0 && leaves.phase[at] !== phase) continue;
    const [op, kernel] = [leaves.op[at], leaves.kernel[at]];
    let place = layers[leaves.layer[at]] ?? root;
    place = child(place, `op ${op}`, { kind: "op", name: ops.name[op], label: ops.name[op].replace(/^aten::/, ""), row: ops.row[op] });
    if (kernels.name[kernel]) place = child(place, `kernel ${kernel}`, { kind: "kernel", name: kernels.name[kernel], label: kernels.name[kernel], row: kernels.row[kernel] });
    for (; place; place = place.above) {
      place.ns += leaves.ns[at];
      place.count += leaves.count[at];
      place.times[leaves.bound[at]] += leaves.ns[at];
    }
  }
}

// A layer's bound is the analysis's own, which counts the idle time before its kernels, too.
function boundsOfRows(layers, rows) {
  const times = [0, 0, 0, 0, 0, 0];
  for (const row of rows) times[layers.bound[row]] += layers.ns[row];
  return times;
}

// Layers in the order of the model, or by time; ops and kernels behind them, by time.
function settled(each, byTime) {
  const inside = [...each.children.values()].filter((below) => below.ns > 0);
  const order = (below) => (below.kind === "layer" && !byTime ? -1 : 0);
  each.children = inside.sort((a, b) => order(a) - order(b) || (order(a) ? a.rows[0] - b.rows[0] : b.ns - a.ns));
  each.bound = each.times.indexOf(Math.max(...each.times));
  for (const below of each.children) settled(below, byTime);
  return each;
}
