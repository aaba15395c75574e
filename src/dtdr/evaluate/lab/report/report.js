(() => {
  const tip = document.getElementById("tip");
  const show = (event) => {
    const target = event.target.closest("[data-tip]");
    if (!target) { tip.style.display = "none"; return; }
    tip.textContent = target.dataset.tip;
    tip.style.display = "block";
    const box = target.getBoundingClientRect();
    const own = tip.getBoundingClientRect();
    const left = Math.min(window.innerWidth - own.width - 8, Math.max(8, box.left + box.width / 2 - own.width / 2));
    const top = box.top - own.height - 8;
    tip.style.left = left + "px";
    tip.style.top = (top < 8 ? box.bottom + 8 : top) + "px";
  };
  for (const name of ["pointerover", "focusin", "click"]) document.addEventListener(name, show);
  document.addEventListener("scroll", () => { tip.style.display = "none"; }, { passive: true });
  // The page's own tip takes the place of the browser's.
  for (const title of document.querySelectorAll("[data-tip] > title")) title.remove();
  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", String(on));
      const group = button.closest(".group");
      for (const part of group.querySelectorAll("svg [data-series]")) {
        if (part.dataset.series === button.dataset.series) part.classList.toggle("off", !on);
      }
    });
  }
})();
