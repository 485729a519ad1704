// The interactive chart: the same lanes and bands as matplotlib's, on a canvas, with nothing loaded.
// Point at it to read values, drag to zoom, double-click to see everything again. With the keyboard:
// arrow keys move, + and - zoom, Escape shows everything again.
function gpumonChart(root, data) {
  "use strict";
  const AXIS = 22, ROW = 20, GAP = 8, HEAD = 18;
  const canvas = root.querySelector("canvas"), tip = root.querySelector(".gpumon-tip");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const full = [data.start, data.end], first = data.view || full, hidden = new Set();
  let LEFT = 96, RIGHT = 104, view = first.slice(), pointer = null, drag = null, printing = false, theme, width, height, lanes, top0;

  // A line that stands for several GPUs: the mean, least and most of those that are not hidden.
  function settle(line) {
    const shown = line.members.filter(m => !hidden.has(m.name));
    const of = reduce => line.t.map((_, i) => {
      const values = shown.map(m => m.v[i]).filter(v => v !== null);
      return values.length ? reduce(values) : null;
    });
    line.v = of(values => values.reduce((a, b) => a + b) / values.length);
    line.low = line.high = undefined;
    if (shown.length > 1) { line.low = of(values => Math.min(...values)); line.high = of(values => Math.max(...values)); }
  }
  function note(line) { // its mean over what is in view
    let sum = 0, weight = 0;
    line.t.forEach((t, i) => {
      const held = Math.min(i + 1 < line.t.length ? line.t[i + 1] : line.end, view[1]) - Math.max(t, view[0]);
      if (held > 0 && line.v[i] !== null) { sum += line.v[i] * held; weight += held; }
    });
    return weight ? Math.round(sum / weight) + " % " + line.word : "nothing in view";
  }
  for (const lane of data.lanes) for (const line of lane.lines) if (line.members) settle(line);

  function clock(s) {
    const span = view[1] - view[0];
    if (span <= 120) return +s.toFixed(span < 2 ? 2 : 1) + " s";
    if (s < 0) return "-" + clock(-s);
    const whole = Math.round(s), m = Math.floor(whole / 60), two = n => String(n).padStart(2, "0");
    return span <= 3600 && whole < 3600 ? m + ":" + two(whole % 60)
      : Math.floor(m / 60) + ":" + two(m % 60) + ":" + two(whole % 60);
  }
  // How a line is drawn; "kind" of a line and of a swatch in the legend.
  const look = ({ kind }) => data.looks[kind], colour = of => theme[look(of).colour];
  const x = t => LEFT + (t - view[0]) / (view[1] - view[0]) * (width - LEFT - RIGHT);
  const time = px => view[0] + (px - LEFT) / (width - LEFT - RIGHT) * (view[1] - view[0]);

  function at(line, t) { // the step that holds at t, by halving
    let low = 0, high = line.t.length - 1;
    if (high < 0 || t < line.t[0]) return null;
    if (line.end !== undefined && t > line.end) return null;
    while (low < high) { const mid = (low + high + 1) >> 1; if (line.t[mid] <= t) low = mid; else high = mid - 1; }
    return line.v[low];
  }

  // What shows of a line, as steps no narrower than some pixels: time-weighted means, and the range.
  function visible(line) {
    const bins = Math.floor((width - LEFT - RIGHT) / look(line).pixels), n = line.t.length;
    const out = { t: [], v: [], low: [], high: [], end: line.end || data.end };
    let start = 0, last = n - 1;
    while (start < n - 1 && line.t[start + 1] <= view[0]) start++;
    while (last > 0 && line.t[last] > view[1]) last--;
    const low = line.low || line.v, high = line.high || line.v;
    const each = (view[1] - view[0]) / bins, condensed = last - start + 1 > bins;
    let bin = null, sum = 0, weight = 0, least = Infinity, most = -Infinity, from = 0;
    const close = () => {
      if (bin === null) return;
      out.t.push(from); out.v.push(weight ? sum / weight : null);
      out.low.push(weight ? least : null); out.high.push(weight ? most : null);
    };
    for (let i = start; i <= last; i++) {
      const held = Math.max((i + 1 < n ? line.t[i + 1] : line.end || data.end) - line.t[i], 1e-9);
      // What lasts longer than a bin, as a gap may, is one by itself: nothing is drawn into it.
      const alone = held > each;
      const here = !condensed ? i : alone ? "alone" + i : Math.floor((line.t[i] - view[0]) / each);
      if (here !== bin) { close(); bin = here; from = line.t[i]; sum = weight = 0; least = Infinity; most = -Infinity; }
      if (line.v[i] === null) continue;
      sum += line.v[i] * held; weight += held;
      least = Math.min(least, low[i]); most = Math.max(most, high[i]);
    }
    close();
    out.ranged = condensed || line.low !== undefined;
    return out;
  }

  // kind: "line", "area" (down to zero) or "range" (from low to high)
  function steps(g, line, y, kind) {
    let open = false;
    for (let i = 0; i < line.t.length; i++) {
      const v = kind === "range" ? line.high[i] : line.v[i];
      if (v === null) { open = false; continue; }
      const a = Math.max(x(line.t[i]), LEFT);
      const b = Math.min(x(i + 1 < line.t.length ? line.t[i + 1] : line.end), width - RIGHT);
      if (b < LEFT || a > width - RIGHT) continue;
      if (kind !== "line") g.rect(a, y(v), b - a, y(kind === "area" ? 0 : line.low[i]) - y(v));
      else { if (open) g.lineTo(a, y(v)); else g.moveTo(a, y(v)); g.lineTo(b, y(v)); open = true; }
    }
  }

  // The longest part of a phase, from a to b, that no phase of another process is drawn over.
  function uncovered(p, later, a, b) {
    const over = later.filter(q => q.depth === p.depth && q.start < p.end && q.end > p.start)
      .map(q => [x(q.start), x(q.end)]).sort((one, other) => one[0] - other[0]);
    let longest = [a, a];
    for (const [from, to] of [...over, [b, b]]) {
      if (Math.min(from, b) - a > longest[1] - longest[0]) longest = [a, Math.min(from, b)];
      a = Math.max(a, to);
    }
    return longest;
  }

  function ribbon(g, phases, top, bottom, font) {
    const name = theme === data.themes.dark ? "dark" : "light";
    g.save();
    g.beginPath(); g.rect(LEFT, top, width - LEFT - RIGHT, bottom - top); g.clip();
    g.textAlign = "center"; g.font = font(11);
    for (const [place, p] of phases.entries()) {
      const a = Math.max(x(p.start), LEFT), b = Math.min(x(p.end), width - RIGHT);
      if (b < LEFT || a > width - RIGHT) continue;
      g.fillStyle = data.colours[name][p.name];
      g.fillRect(a, top + p.depth * ROW + 1, Math.max(b - a - 0.6, 0.4), ROW - 2);
      const fitting = room => p.labels.find(text => g.measureText(text).width + 6 < room);
      if (!fitting(b - a)) continue;
      const [left, right] = uncovered(p, phases.slice(place + 1), a, b), label = fitting(right - left);
      if (label) { g.fillStyle = theme.phase_text; g.fillText(label, (left + right) / 2, top + p.depth * ROW + 14); }
    }
    g.restore();
  }

  function draw() {
    const name = data.theme === "auto" ? (dark.matches && !printing ? "dark" : "light") : data.theme;
    theme = data.themes[name];
    root.style.background = theme.background;
    root.style.color = theme.text;
    root.style.setProperty("--faint", theme.faint);
    for (const swatch of root.querySelectorAll("[data-kind]")) swatch.style.background = colour(swatch.dataset);
    for (const swatch of root.querySelectorAll("[data-phase]")) swatch.style.background = data.colours[name][swatch.dataset.phase];
    width = root.clientWidth;
    const narrow = width < 560;
    LEFT = narrow ? 36 : data.left || 96; RIGHT = narrow ? 10 : 104;
    const levels = data.levels, own = data.lanes.some(lane => lane.phases);
    top0 = own ? 4 : levels * ROW + 4;
    lanes = data.lanes.filter(lane => !hidden.has(lane.title)).map(lane => ({
      lane, tall: lane.host && data.lanes.some(other => !other.host) && !own ? Math.min(data.tall, 64) : data.tall,
      head: (narrow ? HEAD : 0) + (own ? ROW : 0),
    }));
    height = top0 + lanes.reduce((sum, l) => sum + l.head + l.tall + GAP, 0) + AXIS;
    const ratio = devicePixelRatio || 1;
    canvas.width = width * ratio; canvas.height = height * ratio;
    canvas.style.height = height + "px";
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.clearRect(0, 0, width, height);
    const font = size => size + "px system-ui, sans-serif";

    let top = top0;
    for (const item of lanes) {
      const { lane, tall } = item, y = v => item.top + tall * (1 - v / 104);
      top += item.head;
      item.top = top;
      if (own) ribbon(g, lane.phases || [], top - ROW, top, font);
      g.fillStyle = theme.lane;
      g.fillRect(LEFT, top, width - LEFT - RIGHT, tall);
      g.save();
      g.beginPath(); g.rect(LEFT, top, width - LEFT - RIGHT, tall); g.clip();
      for (const p of lane.phases || data.phases) if (p.depth === 0) {
        g.globalAlpha = theme.tint; g.fillStyle = data.colours[name][p.name];
        g.fillRect(x(p.start), top, x(p.end) - x(p.start), tall);
      }
      g.globalAlpha = 1; g.strokeStyle = theme.grid; g.lineWidth = 0.6;
      for (const v of [50, 100]) { g.beginPath(); g.moveTo(LEFT, y(v)); g.lineTo(width - RIGHT, y(v)); g.stroke(); }
      for (const line of lane.lines) {
        const { area, dash } = look(line), seen = visible(line);
        if (area) {
          g.fillStyle = colour(line); g.globalAlpha = 0.3;
          g.beginPath(); steps(g, seen, y, "area"); g.fill();
          if (seen.ranged) { g.globalAlpha = 0.14; g.beginPath(); steps(g, seen, y, "range"); g.fill(); }
        }
        g.globalAlpha = 1; g.strokeStyle = colour(line); g.lineWidth = area ? 1 : 1.4;
        g.setLineDash(dash.map(length => 1.25 * length));
        g.beginPath(); steps(g, seen, y, "line"); g.stroke(); g.setLineDash([]);
      }
      (lane.marks || []).forEach(([moment, words], i) => {
        g.strokeStyle = g.fillStyle = theme.machine; g.lineWidth = 0.9; g.font = font(10); g.textAlign = "left";
        g.setLineDash([3, 2]); g.beginPath(); g.moveTo(x(moment), top); g.lineTo(x(moment), top + tall); g.stroke(); g.setLineDash([]);
        g.fillText(words, x(moment) + 4, y(92 - 14 * (i % 3)) + 4);
      });
      if (lane.lost) {
        const [moment, words] = lane.lost;
        g.strokeStyle = g.fillStyle = theme.activity; g.lineWidth = 1.2; g.font = font(11); g.textAlign = "left";
        g.beginPath(); g.moveTo(x(moment), top); g.lineTo(x(moment), top + tall); g.stroke();
        g.fillText(words, x(moment) + 4, y(80) + 4);
      }
      g.restore();
      if (lane.reason) {
        g.fillStyle = theme.faint; g.font = font(11); g.textAlign = "center";
        g.fillText(lane.reason, (LEFT + width - RIGHT) / 2, top + tall / 2 + 4, width - LEFT - RIGHT - 8);
      }
      g.fillStyle = theme.faint; g.font = font(10); g.textAlign = "right";
      for (const [v, drop] of tall > 80 ? [[0, 0], [100, 8]] : [[100, 8]]) g.fillText(v ? lane.top || "100 %" : v, LEFT - 4, y(v) + drop);
      g.fillStyle = theme.text; g.font = "600 " + font(13);
      const notes = lane.lines.map(line => line.members ? note(line) : line.note);
      if (narrow) {
        const y0 = top - item.head + HEAD - 5;
        g.textAlign = "left"; g.fillText(lane.title, 0, y0, width * 0.55);
        g.textAlign = "right"; g.font = font(11);
        g.fillStyle = lane.lines.length ? colour(lane.lines[0]) : theme.text;
        g.fillText(notes.join(", "), width - RIGHT, y0, width * 0.42);
      } else {
        g.textAlign = "right"; g.fillText(lane.title, LEFT - 12, top + tall / 2, LEFT - 16);
        g.fillStyle = theme.faint; g.font = font(10);
        g.fillText(lane.subtitle, LEFT - 12, top + tall / 2 + 14, LEFT - 16);
        g.textAlign = "left"; g.font = font(11);
        lane.lines.forEach((line, i) => {
          g.fillStyle = colour(line);
          g.fillText(notes[i], width - RIGHT + 8, top + tall / 2 + 4 + (i - (lane.lines.length - 1) / 2) * 14, RIGHT - 8);
        });
      }
      top += tall + GAP;
    }
    if (!own) ribbon(g, data.phases, 0, top0, font);

    const room = Math.max(2, Math.floor((width - LEFT - RIGHT) / 90));
    const raw = (view[1] - view[0]) / room, tens = Math.pow(10, Math.floor(Math.log10(raw)));
    const nice = raw > 5 ? [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400].find(n => n >= raw)
      : [1, 2, 5, 10].map(n => n * tens).find(n => n >= raw);
    g.textAlign = "center"; g.fillStyle = theme.faint; g.font = font(11);
    for (let t = Math.ceil(view[0] / nice) * nice; t <= view[1] + 1e-9; t += nice) g.fillText(clock(t), x(t), height - 6);

    if (drag) {
      g.globalAlpha = 0.2; g.fillStyle = theme.busy;
      g.fillRect(Math.min(drag.from, drag.to), top0, Math.abs(drag.to - drag.from), height - top0 - AXIS);
      g.globalAlpha = 1;
    }
    if (pointer && !drag && pointer.x >= LEFT && pointer.x <= width - RIGHT) {
      g.strokeStyle = theme.faint; g.lineWidth = 1;
      g.beginPath(); g.moveTo(pointer.x, 0); g.lineTo(pointer.x, height - AXIS); g.stroke();
    }
  }

  function explain() {
    if (!pointer || drag || pointer.x < LEFT || pointer.x > width - RIGHT) { tip.style.display = "none"; return; }
    if (!lanes.length) return;
    const lane = (lanes.find(l => pointer.y >= l.top - GAP - l.head && pointer.y < l.top + l.tall) || lanes[0]).lane;
    const t = time(pointer.x), here = (lane.phases || data.phases).filter(p => p.start <= t && t < p.end);
    tip.textContent = "";
    const add = (text, line) => {
      const row = document.createElement("div");
      if (line) row.style.color = colour(line);
      row.textContent = text; tip.appendChild(row);
    };
    add(clock(t) + (here.length ? " · " + here[here.length - 1].labels[0] : ""));
    add(lane.title);
    for (const line of lane.lines) {
      const v = at(line, t);
      for (const m of line.members && line.members.length > 1 ? line.members : []) if (!hidden.has(m.name))
        add(m.name + " " + (at({ t: line.t, v: m.v, end: line.end }, t) ?? "n/a") + " %");
      add(line.short + (line.low ? " mean " : " ") + (v === null ? "not available" : (v * line.scale).toFixed(line.digits) + " " + line.unit), line);
    }
    tip.style.display = "block";
    tip.style.background = theme.background; tip.style.borderColor = theme.grid;
    const flip = pointer.x > width - 210;
    tip.style.left = (flip ? pointer.x - 14 - tip.offsetWidth : pointer.x + 14) + "px";
    tip.style.top = canvas.offsetTop + Math.min(pointer.y + 10, height - tip.offsetHeight - 4) + "px";
  }

  const place = event => { const box = canvas.getBoundingClientRect(); return { x: event.clientX - box.left, y: event.clientY - box.top }; };
  const again = () => { draw(); explain(); };
  canvas.addEventListener("pointermove", event => { pointer = place(event); if (drag) drag.to = pointer.x; again(); });
  canvas.addEventListener("pointerleave", () => { pointer = null; again(); });
  canvas.addEventListener("pointerdown", event => { canvas.setPointerCapture(event.pointerId); const p = place(event); drag = { from: p.x, to: p.x }; });
  canvas.addEventListener("pointerup", () => {
    if (!drag) return;
    const [a, b] = [time(Math.min(drag.from, drag.to)), time(Math.max(drag.from, drag.to))];
    if (Math.abs(drag.to - drag.from) > 5) show(a, b);
    drag = null; again();
  });
  canvas.addEventListener("pointercancel", () => { drag = null; again(); });
  canvas.addEventListener("dblclick", () => { show(...first); });

  function show(a, b) { // never beyond the recording, never closer than a hundredth of a second
    const span = Math.min(Math.max(b - a, 0.01), full[1] - full[0]);
    const start = Math.min(Math.max(a, full[0]), full[1] - span);
    view = [start, start + span];
    again();
  }
  const zoom = by => { const middle = (view[0] + view[1]) / 2, half = (view[1] - view[0]) / 2 * by; show(middle - half, middle + half); };
  const move = by => show(view[0] + by * (view[1] - view[0]), view[1] + by * (view[1] - view[0]));
  const actions = {
    "in": () => zoom(0.5), "out": () => zoom(2), "first": () => show(...first), "all": () => show(...full),
    "ArrowLeft": () => move(-0.2), "ArrowRight": () => move(0.2), "+": () => zoom(0.5), "=": () => zoom(0.5),
    "-": () => zoom(2), "Escape": () => show(...first), "Home": () => show(...full),
  };
  canvas.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(actions, event.key)) return;
    event.preventDefault(); actions[event.key]();
  });
  for (const button of root.querySelectorAll("button[data-do]"))
    button.addEventListener("click", () => actions[button.dataset.do]());
  for (const box of root.querySelectorAll("input[data-hide]")) box.addEventListener("change", () => {
    if (box.checked) hidden.delete(box.dataset.hide); else hidden.add(box.dataset.hide);
    for (const lane of data.lanes) for (const line of lane.lines) if (line.members) settle(line);
    again();
  });
  dark.addEventListener("change", again);
  // Paper is white, whatever the screen was.
  addEventListener("beforeprint", () => { printing = true; again(); });
  addEventListener("afterprint", () => { printing = false; again(); });
  new ResizeObserver(again).observe(root);
  draw();
}

// Draws every chart of the page that is not drawn yet; its data stands beside it, as JSON.
function gpumonDraw() {
  for (const root of document.querySelectorAll(".gpumon:not([data-drawn])")) {
    const data = root.querySelector('script[type="application/json"]');
    if (!data) continue;
    root.dataset.drawn = "";
    gpumonChart(root, JSON.parse(data.textContent));
  }
}
