// What a column means, beside its name while that is pointed at or in focus.
const tip = document.body.appendChild(make("div", { id: "tip", popover: "manual", role: "tooltip" }));

function showTip({ target }) {
  const header = target.closest?.("thead th");
  if (!header) return;
  tip.textContent = byId(header.querySelector("button").getAttribute("aria-describedby")).textContent;
  tip.showPopover();
  const at = header.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(at.left, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${at.top > tip.offsetHeight + 8 ? at.top - tip.offsetHeight - 4 : at.bottom + 4}px`;
}

function hideTip() {
  if (tip.matches(":popover-open")) tip.hidePopover();
}

for (const [over, out] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
  document.addEventListener(over, showTip);
  document.addEventListener(out, hideTip);
}
addEventListener("scroll", hideTip, { passive: true, capture: true });
