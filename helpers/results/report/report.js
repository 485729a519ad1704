// The page's own script: which tables are wider than the page; sorting, filtering and copying them.
// Without it the page shows all rows.
(function () {
  "use strict";
  const mark = boxes => boxes.forEach(box => box.classList.toggle("over", box.scrollWidth > box.clientWidth + 1));
  const watch = new ResizeObserver(entries => mark(entries.map(entry => entry.target)));
  document.querySelectorAll(".scroll").forEach(box => watch.observe(box));

  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach(part => { part.open = true; });
  });
})();
(function () {
  "use strict";
  const button = (text, css, act) => {
    const made = document.createElement("button");
    made.type = "button"; made.className = css; made.textContent = text;
    made.addEventListener("click", act);
    return made;
  };
  const plain = cell => {
    const links = [...cell.querySelectorAll("a")].map(link => link.textContent);
    if (links.length) return links.join(", ");
    const range = cell.querySelector("small");
    const text = [...cell.childNodes].filter(node => node !== range).map(node => node.textContent).join("").trim();
    return range ? `${text} (${range.textContent})` : text;
  };
  const uncut = table => {
    const box = table.closest(".cut");
    if (box) box.nextElementSibling.querySelector("button.all").click();
  };

  // A click on a heading sorts by it, a second one the other way round.
  const order = new Intl.Collator("en", { numeric: true });
  function sort(table, head) {
    const place = head.cellIndex, down = head.getAttribute("aria-sort") !== "ascending";
    uncut(table);
    table.querySelectorAll("thead th").forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "ascending" : "descending");
    const key = row => {
      const cell = row.cells[place];
      return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
    };
    const text = key => typeof key === "string";
    const rows = [...table.tBodies[0].rows].map(row => [key(row), row]);
    rows.sort(([a], [b]) => {
      if (text(a) !== text(b)) return text(a) - text(b);  // a row without a number comes last
      return (down ? 1 : -1) * (text(a) ? order.compare(a, b) : a - b);
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }

  const quoted = text => {
    const safe = /^[=+\-@\t\r]./.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  function copied(table, form) {
    const rows = [...table.tHead.rows, ...table.tBodies[0].rows].filter(
      row => !row.classList.contains("unmatched"));
    if (form === "CSV") {
      const value = cell => cell.dataset.value ?? plain(cell);
      return rows.map(row => [...row.cells].map(cell => quoted(value(cell))).join(",")).join("\n");
    }
    const lines = rows.map(row => `| ${[...row.cells].map(cell => plain(cell).replace(/[|\\<]/g, "\\$&")).join(" | ")} |`);
    lines.splice(1, 0, "|" + " --- |".repeat(rows[0].cells.length));
    return lines.join("\n");
  }
  async function copy(table, form, made) {
    try {
      await navigator.clipboard.writeText(copied(table, form));
      made.textContent = "Copied";
    } catch {
      made.textContent = "The browser refused";
    }
    setTimeout(() => { made.textContent = form; }, 1500);
  }

  document.querySelectorAll(".scroll table").forEach(table => {
    table.querySelectorAll("thead th").forEach(head => {
      const made = button(head.textContent, "sort", () => sort(table, head));
      head.replaceChildren(made);
    });
    const tools = document.createElement("p");
    tools.className = "tools screen";
    if (table.classList.contains("all")) {
      const filter = document.createElement("input");
      filter.type = "search";
      filter.addEventListener("input", () => {
        uncut(table);
        const words = filter.value.toLowerCase().split(/\s+/);
        for (const row of table.tBodies[0].rows) {
          const told = [...row.cells].filter(cell => !("value" in cell.dataset));  // "4" means 4 devices
          const text = told.map(cell => cell.textContent).join(" ").toLowerCase();
          row.classList.toggle("unmatched", !words.every(word => text.includes(word)));
        }
      });
      const label = document.createElement("label");
      label.append("Filter ", filter);
      tools.append(label);
    }
    tools.append("Copy ");
    for (const form of ["Markdown", "CSV"]) {
      const made = button(form, "copy", () => copy(table, form, made));
      tools.append(made, " ");
    }
    const box = table.closest(".scroll");
    if (table.classList.contains("all")) box.before(tools);
    else box.nextElementSibling?.querySelector("button.all") ? box.nextElementSibling.after(tools) : box.after(tools);
  });
})();
(function () {
  "use strict";
  document.querySelectorAll("button.all").forEach(button => {
    const box = button.parentElement.previousElementSibling;
    box.classList.add("cut");
    button.hidden = false;
    button.addEventListener("click", () => { box.classList.remove("cut"); button.hidden = true; });
  });
})();
