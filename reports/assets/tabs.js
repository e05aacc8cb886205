// One table of the last section at a time; without this script, or on paper, all of them.
const tablist = document.querySelector("[role=tablist]");
const tabs = tablist ? [...tablist.querySelectorAll("[role=tab]")] : [];
const panelOf = (tab) => byId(tab.getAttribute("aria-controls"));

function choose(tab) {
  for (const each of tabs) {
    each.ariaSelected = String(each === tab);
    each.tabIndex = each === tab ? 0 : -1;
    panelOf(each).classList.toggle("away", each !== tab);
  }
}

function openTab(part) {
  const tab = tabs.find((each) => panelOf(each).contains(part));
  if (tab) choose(tab);
}

function moved(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1, Home: -tabs.length, End: tabs.length }[event.key];
  if (!step) return;
  event.preventDefault();
  const at = tabs.indexOf(event.target);
  const to = Math.abs(step) > 1 ? (step > 0 ? tabs.length - 1 : 0) : (at + step + tabs.length) % tabs.length;
  choose(tabs[to]);
  tabs[to].focus();
}

if (tabs.length) {
  tablist.hidden = false;
  for (const tab of tabs) {
    const panel = panelOf(tab);
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", moved);
  }
  choose(tabs[0]);
}
