// Rows of a tree that open and close.
const ROWS_AT_FIRST = 48;

function folding(rows, byIndex, changed) {
  const closed = new Set();
  const above = (row) => byIndex.get(row.dataset.parent);
  const parents = new Set(rows.map((row) => row.dataset.parent));

  function openDepth() {
    const upTo = (depth) => rows.filter((row) => row.dataset.depth <= depth).length;
    let depth = 0;
    while (depth < 64 && upTo(depth + 1) <= ROWS_AT_FIRST) depth += 1;
    return depth;
  }

  function twist(row) {
    const label = `Layers in ${row.querySelector(".long").textContent}`;
    const button = make("button", { type: "button", className: "twist", ariaLabel: label });
    const mark = () => {
      button.textContent = closed.has(row) ? "▸" : "▾";
      button.ariaExpanded = String(!closed.has(row));
    };
    button.addEventListener("click", () => {
      if (!closed.delete(row)) closed.add(row);
      mark();
      changed();
    });
    mark();
    row.querySelector(".twist").replaceWith(button);
  }

  const depth = openDepth();
  for (const row of rows) {
    if (!parents.has(row.dataset.row)) continue;
    if (row.dataset.depth >= depth) closed.add(row);
    twist(row);
  }

  return {
    folded(row) {
      for (let at = above(row); at; at = above(at)) if (closed.has(at)) return true;
      return false;
    },
    unfold(row) {
      for (let at = above(row); at; at = above(at)) if (closed.has(at)) at.querySelector("button.twist").click();
    },
  };
}
