// The interactive chart: the same lanes and bands as matplotlib's, on a canvas, with nothing loaded.
// Point at it to read values, drag to zoom, double-click to see everything again.
function gpumonChart(root, data) {
  "use strict";
  const LEFT = 96, RIGHT = 104, AXIS = 22, ROW = 20, GAP = 8;
  const canvas = root.querySelector("canvas"), tip = root.querySelector(".gpumon-tip");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const full = [data.start, data.end];
  let view = full.slice(), pointer = null, drag = null, theme, width, height, lanes, top0;

  function clock(s) {
    const span = view[1] - view[0];
    if (span <= 120) return +s.toFixed(span < 2 ? 2 : 1) + " s";
    const whole = Math.round(s), m = Math.floor(whole / 60), two = n => String(n).padStart(2, "0");
    return span <= 3600 && whole < 3600 ? m + ":" + two(whole % 60)
      : Math.floor(m / 60) + ":" + two(m % 60) + ":" + two(whole % 60);
  }
  const x = t => LEFT + (t - view[0]) / (view[1] - view[0]) * (width - LEFT - RIGHT);
  const time = px => view[0] + (px - LEFT) / (width - LEFT - RIGHT) * (view[1] - view[0]);

  function at(line, t) { // the step that holds at t, by halving
    let low = 0, high = line.t.length - 1;
    if (high < 0 || t < line.t[0]) return null;
    while (low < high) { const mid = (low + high + 1) >> 1; if (line.t[mid] <= t) low = mid; else high = mid - 1; }
    return line.v[low];
  }

  // What shows of a line, as steps no narrower than some pixels: time-weighted means, and the range.
  const WIDTH = { busy: 2, host: 2, activity: 3, memory: 3, power: 4 };
  function visible(line) {
    const bins = Math.floor((width - LEFT - RIGHT) / WIDTH[line.kind]), n = line.t.length;
    const out = { t: [], v: [], low: [], high: [] };
    let first = 0, last = n - 1;
    while (first < n - 1 && line.t[first + 1] <= view[0]) first++;
    while (last > 0 && line.t[last] > view[1]) last--;
    const low = line.low || line.v, high = line.high || line.v;
    const each = (view[1] - view[0]) / bins, condensed = last - first + 1 > bins;
    let bin = null, sum = 0, weight = 0, least = Infinity, most = -Infinity, from = 0;
    const close = () => {
      if (bin === null) return;
      out.t.push(from); out.v.push(weight ? sum / weight : null);
      out.low.push(weight ? least : null); out.high.push(weight ? most : null);
    };
    for (let i = first; i <= last; i++) {
      const here = condensed ? Math.floor((line.t[i] - view[0]) / each) : i;
      if (here !== bin) { close(); bin = here; from = line.t[i]; sum = weight = 0; least = Infinity; most = -Infinity; }
      if (line.v[i] === null) continue;
      const held = Math.max((i + 1 < n ? line.t[i + 1] : data.end) - line.t[i], 1e-9);
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
      const b = Math.min(x(i + 1 < line.t.length ? line.t[i + 1] : data.end), width - RIGHT);
      if (kind !== "line") g.rect(a, y(v), b - a, y(kind === "area" ? 0 : line.low[i]) - y(v));
      else { if (open) g.lineTo(a, y(v)); else g.moveTo(a, y(v)); g.lineTo(b, y(v)); open = true; }
    }
  }

  function draw() {
    const name = data.theme === "auto" ? (dark.matches ? "dark" : "light") : data.theme;
    theme = data.themes[name];
    root.style.background = theme.background;
    root.style.color = theme.text;
    root.style.setProperty("--faint", theme.faint);
    for (const swatch of root.querySelectorAll("[data-kind]")) swatch.style.background = theme[swatch.dataset.kind];
    for (const swatch of root.querySelectorAll("[data-phase]")) swatch.style.background = data.colours[name][swatch.dataset.phase];
    width = root.clientWidth;
    const levels = data.levels;
    top0 = levels * ROW + 4;
    lanes = data.lanes.map(lane => ({ lane, tall: lane.host ? Math.min(data.tall, 64) : data.tall }));
    height = top0 + lanes.reduce((sum, l) => sum + l.tall + GAP, 0) + AXIS;
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
      item.top = top;
      g.fillStyle = theme.lane;
      g.fillRect(LEFT, top, width - LEFT - RIGHT, tall);
      g.save();
      g.beginPath(); g.rect(LEFT, top, width - LEFT - RIGHT, tall); g.clip();
      for (const p of data.phases) if (p.depth === 0) {
        g.globalAlpha = theme.tint; g.fillStyle = data.colours[name][p.name];
        g.fillRect(x(p.start), top, x(p.end) - x(p.start), tall);
      }
      g.globalAlpha = 1; g.strokeStyle = theme.grid; g.lineWidth = 0.6;
      for (const v of [50, 100]) { g.beginPath(); g.moveTo(LEFT, y(v)); g.lineTo(width - RIGHT, y(v)); g.stroke(); }
      for (const line of lane.lines) {
        const area = line.kind === "busy" || line.kind === "host", colour = theme[line.kind], seen = visible(line);
        if (area) {
          g.fillStyle = colour; g.globalAlpha = 0.3;
          g.beginPath(); steps(g, seen, y, "area"); g.fill();
          if (seen.ranged) { g.globalAlpha = 0.14; g.beginPath(); steps(g, seen, y, "range"); g.fill(); }
        }
        g.globalAlpha = 1; g.strokeStyle = colour; g.lineWidth = area ? 1 : 1.4;
        g.setLineDash(line.kind === "power" ? [5, 2] : []);
        g.beginPath(); steps(g, seen, y, "line"); g.stroke(); g.setLineDash([]);
      }
      g.restore();
      g.textAlign = "right"; g.fillStyle = theme.text; g.font = "600 " + font(13);
      g.fillText(lane.title, LEFT - 12, top + tall / 2);
      g.fillStyle = theme.faint; g.font = font(10);
      g.fillText(lane.subtitle, LEFT - 12, top + tall / 2 + 14);
      g.textAlign = "left"; g.font = font(11);
      lane.lines.forEach((line, i) => {
        g.fillStyle = theme[line.kind];
        g.fillText(line.note, width - RIGHT + 8, top + tall / 2 + 4 + (i - (lane.lines.length - 1) / 2) * 14);
      });
      top += tall + GAP;
    }

    g.save();
    g.beginPath(); g.rect(LEFT, 0, width - LEFT - RIGHT, top0); g.clip();
    g.textAlign = "center"; g.font = font(11);
    for (const p of data.phases) {
      const a = Math.max(x(p.start), LEFT), b = Math.min(x(p.end), width - RIGHT);
      if (b < LEFT || a > width - RIGHT) continue;
      g.fillStyle = data.colours[name][p.name];
      g.fillRect(a, p.depth * ROW + 1, Math.max(b - a - 0.6, 0.4), ROW - 2);
      const label = p.labels.find(text => g.measureText(text).width + 6 < b - a);
      if (label) { g.fillStyle = theme.phase_text; g.fillText(label, (a + b) / 2, p.depth * ROW + 14); }
    }
    g.restore();

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
    const t = time(pointer.x), here = data.phases.filter(p => p.start <= t && t < p.end);
    const lane = (lanes.find(l => pointer.y >= l.top - GAP && pointer.y < l.top + l.tall) || lanes[0]).lane;
    tip.textContent = "";
    const add = (text, kind) => {
      const line = document.createElement("div");
      if (kind) line.style.color = theme[kind];
      line.textContent = text; tip.appendChild(line);
    };
    add(clock(t) + (here.length ? " · " + here[here.length - 1].labels[0] : ""));
    add(lane.title);
    for (const line of lane.lines) {
      const v = at(line, t);
      add(line.short + " " + (v === null ? "not available" : (v * line.scale).toFixed(line.digits) + " " + line.unit), line.kind);
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
    if (Math.abs(drag.to - drag.from) > 5) view = [Math.max(a, full[0]), Math.min(b, full[1])];
    drag = null; again();
  });
  canvas.addEventListener("dblclick", () => { view = full.slice(); again(); });
  dark.addEventListener("change", again);
  new ResizeObserver(again).observe(root);
  draw();
}
