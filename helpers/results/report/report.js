// The page's own script: which tables are wider than the page, which rows and columns are shown, and
// time to a chosen value. Without it the page shows all rows, and the default value.
(function () {
  "use strict";
  const mark = boxes => boxes.forEach(box => box.classList.toggle("over", box.scrollWidth > box.clientWidth + 1));
  const watch = new ResizeObserver(entries => mark(entries.map(entry => entry.target)));
  document.querySelectorAll(".scroll").forEach(box => watch.observe(box));
})();
const chooseAgain = (function () {
  "use strict";
  document.querySelectorAll("button.all").forEach(button => {
    const box = button.parentElement.previousElementSibling;
    box.classList.add("cut");
    button.hidden = false;
    button.addEventListener("click", () => { box.classList.remove("cut"); button.hidden = true; });
  });
  const form = document.getElementById("choose");
  if (!form) return () => {};
  form.hidden = false;
  function choose() {
    const hidden = { of: new Set(), on: new Set() };
    form.querySelectorAll("input").forEach(box => {
      for (const key of ["of", "on"]) if (key in box.dataset && !box.checked) hidden[key].add(box.dataset[key]);
    });
    document.querySelectorAll("table [data-of], table [data-on]").forEach(part => {
      part.hidden = hidden.of.has(part.dataset.of) || hidden.on.has(part.dataset.on);
    });
  }
  form.addEventListener("change", choose);
  return choose;
})();
(function () {
  "use strict";
  const slider = document.getElementById("target");
  if (!slider) return;
  const { percent, runs } = JSON.parse(document.getElementById("target-data").textContent);
  const shown = document.getElementById("target-value");
  const body = document.querySelector("#target-table tbody");
  const text = (value, digits) => percent ? `${(100 * value).toFixed(digits - 2)} %` : value.toFixed(digits);
  function show() {
    const wanted = Number(slider.value);
    shown.textContent = text(wanted, 2);
    const rows = runs.map(run => {
      const first = run.epochs.find(epoch => epoch[2] >= wanted);
      const best = Math.max(...run.epochs.map(epoch => epoch[2]));
      return { run: run.run, of: run.of, on: run.on, first, best, place: run.ranks && first ? first[1] : Infinity };
    });
    rows.sort((a, b) => a.place - b.place || 0);
    body.replaceChildren(...rows.map(row => {
      const line = document.createElement("tr");
      line.dataset.of = row.of; line.dataset.on = row.on;
      const head = document.createElement("th");
      head.scope = "row"; head.textContent = row.run; line.append(head);
      const texts = [
        row.first ? row.first[3] : "not reached",
        row.first ? String(row.first[0]) : "-",
        Number.isFinite(row.best) ? text(row.best, 3) : "n/a",
      ];
      for (const text of texts) {
        const cell = document.createElement("td");
        cell.textContent = text; cell.className = "number"; line.append(cell);
      }
      return line;
    }));
    chooseAgain();
  }
  slider.addEventListener("input", show);
})();
