// Before the page is painted: the theme that was chosen, and that scripts work.
try {
  const theme = localStorage.getItem("durable.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* storage may be off: the system's theme it is */ }
document.documentElement.classList.add("scripted");
