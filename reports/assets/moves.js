// The roofline before and after a prediction, and the rows of it.
const movesChoice = byId("roofline-moves");
const chosenMoves = () => (movesChoice?.value ? figures.roofline?.moves[movesChoice.value] : null);

function applyMoves() {
  const moves = chosenMoves();
  byId("moves-rows").open = Boolean(moves);
  byId("moves-key").hidden = !moves;
  document.querySelector("[name=roofline-of]").closest("fieldset").classList.toggle("off", Boolean(moves));
  byId("bounds-key").hidden = Boolean(moves);
  tables.get("roofline_moves").restrict(moves ? new Set(moves.rows) : null);
  const place = byId("plot-roofline");
  if (place.data) draw(place);
}

function showMoves(applied) {
  if (!movesChoice || ![...movesChoice.options].some(({ value }) => value === applied)) return false;
  movesChoice.value = applied;
  applyMoves();
  byId("roofline").scrollIntoView();
  return true;
}

movesChoice?.addEventListener("change", applyMoves);
for (const input of document.querySelectorAll("[name=roofline-of]")) {
  input.addEventListener("click", () => {
    if (!movesChoice?.value) return;
    movesChoice.value = "";
    applyMoves();
  });
}
for (const button of document.querySelectorAll("[data-moves]")) {
  button.addEventListener("click", () => {
    showMoves(button.dataset.moves);
    history.replaceState(null, "", `#moves=${button.dataset.moves}`);
    movesChoice.focus({ preventScroll: true });
  });
}
