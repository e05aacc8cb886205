// The tables held to what one layer, op or kernel contains.
function narrow(label, rows) {
  for (const [name, view] of tables) if (rows[name]) view.restrict(rows[name]);
  byId("narrowed").hidden = false;
  byId("narrowed-to").textContent = label;
  byId("tables").scrollIntoView();
}

byId("narrowed-off").addEventListener("click", () => {
  for (const view of tables.values()) view.restrict(null);
  byId("narrowed").hidden = true;
});
