try {
  const chosen = localStorage.getItem("tracekit-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* storage is off: the system's theme holds */ }
