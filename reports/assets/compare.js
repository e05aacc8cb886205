// Links to rows.
function followAddress() {
  const row = location.hash.slice(1).match(/^([a-z_]+)-(\d+)$/);
  if (row) tables.get(row[1])?.reveal(Number(row[2]));
}
addEventListener("hashchange", followAddress);
followAddress();
document.body.dataset.ready = "yes";
