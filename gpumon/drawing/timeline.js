// The interactive chart: one uPlot for each lane of devices or runs, with bands for the phases.
// Point at it to read values, drag to zoom, double-click to see everything again. With the keyboard:
// arrow keys move, + and - zoom, Escape shows everything again.
function gpumonChart(root, data) {
  "use strict";
  const ROW = 20, FONT = "px system-ui, sans-serif", dpr = devicePixelRatio || 1;
  const lanes = root.querySelector(".gpumon-lanes"), output = root.querySelector("output");
  const dark = matchMedia("(prefers-color-scheme: dark)"), plots = [];
  let view = data.view, printing = false;
  const theme = () => data.theme !== "auto" ? data.theme : dark.matches && !printing ? "dark" : "light";
  const colour = kind => data.themes[theme()][kind], tint = phase => data.colours[theme()][phase];

  const add = (parent, tag, className, textContent = "", data = {}) => {
    const element = parent.appendChild(Object.assign(document.createElement(tag), { className, textContent }));
    return Object.assign(element.dataset, data) && element;
  };

  function clock(s) {
    const span = view[1] - view[0], two = n => String(n).padStart(2, "0");
    if (span <= 120) return +s.toFixed(span < 2 ? 2 : 1) + " s";
    const whole = Math.round(Math.abs(s)), m = Math.floor(whole / 60);
    const text = span <= 3600 && whole < 3600 ? m : Math.floor(m / 60) + ":" + two(m % 60);
    return (s < 0 ? "-" : "") + text + ":" + two(whole % 60);
  }

  // A line whose values each hold until the next time, over an area down to `low`, or else to zero.
  const steps = low => (u, series, from, to) => {
    const [times, values] = [u.data[0], u.data[series]], stroke = new Path2D(), fill = new Path2D();
    const x = t => u.valToPos(t, "x", true), y = v => u.valToPos(v, "y", true);
    let open = false;
    for (let i = Math.max(0, from - 1); i <= to && i + 1 < times.length; i++) {
      if (values[i] !== null) {
        const left = x(times[i]), right = x(times[i + 1]), top = y(values[i]);
        if (open) stroke.lineTo(left, top); else stroke.moveTo(left, top);
        stroke.lineTo(right, top);
        fill.rect(left, top, right - left, y(low ? low[i] : 0) - top);
      }
      open = values[i] !== null;
    }
    return { stroke: low ? null : stroke, fill, flags: 1 };
  };

  // Draw above or in a lane, between two heights and not beyond its sides.
  function within(u, top, bottom, draw) {
    const g = u.ctx;
    g.save(); g.beginPath(); g.rect(u.bbox.left, top, u.bbox.width, bottom - top); g.clip();
    draw(g, t => u.valToPos(t, "x", true));
    g.restore();
  }

  function background(u, phases) {
    const { top, height } = u.bbox;
    within(u, top, top + height, (g, x) => {
      g.fillStyle = colour("lane"); g.fillRect(u.bbox.left, top, u.bbox.width, height);
      g.globalAlpha = colour("tint");
      for (const p of phases) if (p.depth === 0) {
        g.fillStyle = tint(p.name); g.fillRect(x(p.start), top, x(p.end) - x(p.start), height);
      }
    });
  }

  function annotate(u, lane, phases) {
    const { left, width, top, height } = u.bbox, row = ROW * dpr;
    within(u, top - lane.levels * row, top, (g, x) => {
      g.font = 11 * dpr + FONT; g.textAlign = "center";
      for (const p of phases) {
        const a = Math.max(x(p.start), left), b = Math.min(x(p.end), left + width);
        const y = top + (p.depth - lane.levels) * row;
        g.fillStyle = tint(p.name); g.fillRect(a, y + dpr, Math.max(b - a - 0.6 * dpr, 0.4), row - 2 * dpr);
        const label = p.labels.find(text => g.measureText(text).width + 6 * dpr < b - a);
        g.fillStyle = colour("phase_text"); if (label) g.fillText(label, (a + b) / 2, y + 14 * dpr);
      }
    });
    within(u, top, top + height, (g, x) => {
      g.font = 10 * dpr + FONT; g.textAlign = "left"; g.setLineDash([3 * dpr, 2 * dpr]);
      lane.marks.forEach(([moment, words, kind], i) => {
        g.strokeStyle = g.fillStyle = colour(kind);
        g.beginPath(); g.moveTo(x(moment), top); g.lineTo(x(moment), top + height); g.stroke();
        g.fillText(words, x(moment) + 4 * dpr, top + (12 + 14 * (i % 3)) * dpr);
      });
      g.textAlign = "center"; g.fillStyle = colour("faint");
      g.fillText(lane.reason, left + width / 2, top + height / 2, width);
    });
  }

  data.lanes.forEach((lane, number) => {
    const phases = lane.phases || data.phases, last = number === data.lanes.length - 1;
    const row = add(lanes, "div", "gpumon-lane"), names = add(row, "div", "gpumon-names");
    add(names, "b", "", lane.title); add(names, "span", "", lane.subtitle);
    const box = add(row, "div", "gpumon-plot"), notes = add(row, "div", "gpumon-notes");
    const texts = lane.lines.map(line => add(notes, "div", "", line.note, { ink: line.colour }));
    add(notes, "div", "gpumon-faint", lane.note);
    const series = [{}], values = [lane.t], points = { show: false };
    for (const { colour: kind, area, dash, low, high, v } of lane.lines) {
      if (low) { series.push({ paths: steps(low), fill: () => colour(kind) + "26", points }); values.push(high); }
      const fill = area ? () => colour(kind) + "4d" : undefined;
      series.push({ paths: steps(), stroke: () => colour(kind), fill, width: area ? 1 : 1.4, dash, points }); values.push(v);
    }
    function tell(u) { // in the place of each mean the value at the pointer
      const t = u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : NaN;
      const i = lane.t.findLastIndex(each => each <= t), here = phases.filter(p => p.start <= t && t < p.end);
      lane.lines.forEach(({ short, note, unit, scale, several, v, low, high }, place) => {
        const at = of => of[i] === null ? "n/a" : +(of[i] * scale).toPrecision(4);
        const range = several ? ` (${at(low)} to ${at(high)})` : "";
        texts[place].textContent = isNaN(t) ? note : i < 0 ? "no value" : `${short} ${at(v)}${range} ${unit}`;
      });
      if (u.cursor.event) output.textContent = isNaN(t) ? "" : clock(t) + here.slice(-1).map(p => " · " + p.labels[0]);
    }
    const axis = { stroke: () => colour("faint"), font: 11 + FONT, ticks: { show: false }, gap: 4 };
    const grid = { stroke: () => colour("grid"), width: 0.6 }, height = lane.tall + lane.levels * ROW + (last ? 28 : 6);
    const u = new uPlot({
      width: box.clientWidth, height, series, padding: [lane.levels * ROW + 4, 0, 2, 0], legend: { show: false },
      scales: { x: { time: false, range: () => view }, y: { range: [0, 104] } },
      axes: [
        { ...axis, show: last, size: 24, grid: { show: false }, values: (_, all) => all.map(clock), incrs: data.ticks },
        { ...axis, size: 58, grid, splits: () => [0, 50, 100], values: () => [lane.tall > 80 ? "0" : "", "", lane.top] },
      ],
      cursor: {
        y: false, points, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => () => show(data.view) },
        sync: { key: root.id, filters: { pub: type => type === "mousemove" || type === "mouseleave" } },
      },
      hooks: {
        drawClear: [u => background(u, phases)], draw: [u => annotate(u, lane, phases)], setCursor: [tell],
        setSelect: [u => {
          const { left, width } = u.select, to = [left, left + width].map(x => u.posToVal(x, "x"));
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          if (width > 5) show(to);
        }],
      },
    }, values, box);
    plots.push(u);
    new ResizeObserver(() => u.setSize({ width: box.clientWidth, height })).observe(box);
  });

  function show([a, b]) { // never beyond the recording, never closer than a hundredth of a second
    const all = data.end - data.start, span = Math.min(Math.max(b - a, 0.01), all);
    const min = Math.min(Math.max(a, data.start), data.end - span), max = min + span;
    view = [min, max];
    for (const u of plots) u.setScale("x", { min, max });
  }
  function paint() {
    root.style.background = colour("background"); root.style.color = colour("text");
    root.style.setProperty("--faint", colour("faint"));
    for (const e of root.querySelectorAll("[data-kind]")) e.style.background = colour(e.dataset.kind);
    for (const e of root.querySelectorAll("[data-phase]")) e.style.background = tint(e.dataset.phase);
    for (const e of root.querySelectorAll("[data-ink]")) e.style.color = colour(e.dataset.ink);
    for (const u of plots) u.redraw(false);
  }
  const zoom = by => { const [a, b] = view, more = (b - a) / 2 * (by - 1); show([a - more, b + more]); };
  const move = by => show(view.map(t => t + by * (view[1] - view[0])));
  const actions = {
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "ArrowLeft": () => move(-0.2), "ArrowRight": () => move(0.2),
    "Escape": () => show(data.view), "Home": () => show([data.start, data.end]),
  };
  lanes.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(actions, event.key)) return;
    event.preventDefault(); actions[event.key]();
  });
  for (const button of root.querySelectorAll("button")) button.addEventListener("click", actions[button.dataset.do]);
  dark.addEventListener("change", paint);
  // Paper is white, whatever the screen was.
  for (const when of ["beforeprint", "afterprint"]) addEventListener(when, () => { printing = when[0] === "b"; paint(); });
  paint();
}

// Draws every chart of the page that is not drawn yet; its data stands beside it, as JSON.
function gpumonDraw() {
  for (const root of document.querySelectorAll(".gpumon:not([data-drawn])")) {
    root.dataset.drawn = "";
    gpumonChart(root, JSON.parse(root.querySelector('script[type="application/json"]').textContent));
  }
}
