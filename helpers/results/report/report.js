// The page's own script: which tables are wider than the page, and time to a chosen value. Without
// it the page shows the default one.
(function () {
  "use strict";
  const mark = boxes => boxes.forEach(box => box.classList.toggle("over", box.scrollWidth > box.clientWidth + 1));
  const watch = new ResizeObserver(entries => mark(entries.map(entry => entry.target)));
  document.querySelectorAll(".scroll").forEach(box => watch.observe(box));
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
      return { run: run.run, first, best, place: run.ranks && first ? first[1] : Infinity };
    });
    rows.sort((a, b) => a.place - b.place || 0);
    body.replaceChildren(...rows.map(row => {
      const line = document.createElement("tr");
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
  }
  slider.addEventListener("input", show);
})();
