// Draws the tables of figures as charts. The tables stay: a screen reader, and a browser without JavaScript, have the same figures in them.
"use strict";
(function () {
  const dashes = [[], [8, 3], [2, 3], [8, 3, 2, 3], [14, 4], [4, 4, 10, 4]];
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const seconds = e => Date.parse(e.textContent.replace(" ", "T")) / 1000;
  const clock = x => new Date(x * 1000).toISOString().slice(0, 19).replace("T", " ") + "Z";
  const number = v => v == null ? "–" : v.toLocaleString("en", { maximumSignificantDigits: 4 });
  const rows = id => [...document.querySelectorAll("#" + id + " tbody tr")].map(r => r.cells);
  const led = rows("led").map(c => ({ from: seconds(c[0]), to: seconds(c[1]), node: c[2].textContent }));
  const leaders = [...new Set(led.map(b => b.node))];
  const events = rows("events").map(c => ({ at: seconds(c[0]), text: c[1].textContent + ": " + c[3].textContent }));
  const zoom = document.getElementById("zoom"), all = zoom.querySelector("button"), reading = document.getElementById("reading");
  const plots = [];
  let whole = null; // the period
  let busy = false;

  function make(tag, inside, text) {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    inside.append(e);
    return e;
  }

  // A value between two gaps is a point: no line leads to it.
  const alone = (u, k) => u.data[k].flatMap((v, i, all) => v != null && all[i - 1] == null && all[i + 1] == null ? [i] : []);

  // Where a time lies across the chart, or its edge.
  const within = (u, x) => Math.min(Math.max(u.valToPos(x, "x", true), u.bbox.left), u.bbox.left + u.bbox.width);

  // Who led is a band behind the lines; an event is a line through all.
  function background(u) {
    const c = u.ctx, r = devicePixelRatio, box = u.bbox, at = x => within(u, x);
    c.save();
    for (const b of led) {
      const x = at(b.from), w = at(b.to) - x;
      if (w <= 0) continue;
      c.fillStyle = colour(leaders.indexOf(b.node) % 2 ? "--reign1" : "--reign0");
      c.globalAlpha = 0.45;
      c.fillRect(x, box.top, w, box.height);
      c.globalAlpha = 1;
    }
    c.strokeStyle = colour("--mark");
    c.lineWidth = r;
    c.setLineDash([3 * r, 3 * r]);
    for (const e of events) {
      const x = u.valToPos(e.at, "x", true);
      if (x < box.left || x > box.left + box.width) continue;
      c.beginPath();
      c.moveTo(x, box.top);
      c.lineTo(x, box.top + box.height);
      c.stroke();
    }
    c.restore();
  }

  // A band has its node's name where there is room, cut out of the grid.
  function names(u) {
    const c = u.ctx, r = devicePixelRatio, box = u.bbox, at = x => within(u, x);
    c.save();
    c.font = 11 * r + "px system-ui, sans-serif";
    c.textAlign = "left";
    c.textBaseline = "alphabetic";
    c.lineJoin = "round";
    c.lineWidth = 4 * r;
    c.strokeStyle = colour("--bg");
    c.fillStyle = colour("--text");
    for (const b of led) {
      const x = at(b.from);
      if (c.measureText(b.node).width + 8 * r >= at(b.to) - x) continue;
      c.strokeText(b.node, x + 4 * r, box.top + 12 * r);
      c.fillText(b.node, x + 4 * r, box.top + 12 * r);
    }
    c.restore();
  }

  function show(min, max) {
    busy = true;
    for (const p of plots) p.u.setScale("x", { min: min, max: max });
    busy = false;
    all.disabled = min <= whole[0] && max >= whole[1];
    // "Show" asks for what is zoomed in to, with more detail.
    for (const [name, x] of [["from", min], ["to", max]]) {
      const field = document.querySelector("[name=" + name + "]");
      if (field) field.value = all.disabled ? field.defaultValue : clock(x);
    }
  }

  // What is under the cursor, in all charts; said aloud only to who moves it by keys.
  function read(p, aloud) {
    const u = p.u, i = u.cursor.idx;
    p.values.forEach((e, k) => { e.textContent = i == null ? "" : number(u.data[k + 1][i]); });
    if (i == null || u.cursor.event == null && !aloud) return;
    const x = u.data[0][i], step = u.data[0].length > 1 ? u.data[0][1] - u.data[0][0] : 10;
    const leader = led.find(b => b.from <= x && x < b.to);
    const parts = [clock(x), leader ? leader.node + " leads" : "no leader was recorded"];
    if (aloud) p.names.forEach((name, k) => parts.push(name + " " + number(u.data[k + 1][i])));
    const near = Math.max(step, (u.scales.x.max - u.scales.x.min) / 150);
    for (const e of events) if (e.at >= x && e.at < x + near) parts.push(e.text);
    reading.textContent = parts.join(" · ");
  }

  function keys(p) {
    p.box.addEventListener("keydown", function (e) {
      const u = p.u, x = u.data[0], s = u.scales.x;
      const first = x.findIndex(v => v >= s.min), last = x.findLastIndex(v => v <= s.max);
      let i = u.cursor.idx == null ? first : u.cursor.idx;
      switch (e.key) {
        case "ArrowLeft": i--; break;
        case "ArrowRight": if (u.cursor.idx != null) i++; break;
        case "Home": i = first; break;
        case "End": i = last; break;
        case "+": case "=": case "-": {
          const half = (s.max - s.min) * (e.key === "-" ? 1 : 0.25), middle = u.cursor.idx == null ? (s.min + s.max) / 2 : x[i];
          if (half > x[1] - x[0]) show(Math.max(whole[0], middle - half), Math.min(whole[1], middle + half));
          break;
        }
        case "Escape": show(whole[0], whole[1]); break;
        default: return;
      }
      e.preventDefault();
      i = Math.min(Math.max(i, first), last);
      for (const o of plots) o.u.setCursor({ left: o.u.valToPos(x[i], "x"), top: o === p ? 10 : -10 }, false);
      for (const o of plots) read(o, o === p);
    });
  }

  for (const part of document.querySelectorAll(".overtime")) {
    const table = part.querySelector("table");
    if (!table) continue;
    const heads = [...table.tHead.rows[0].cells].slice(1), body = [...table.tBodies[0].rows];
    if (body.length < 2) continue;
    const data = [body.map(r => seconds(r.cells[0]))];
    heads.forEach((_, k) => data.push(body.map(r => r.cells[k + 1].textContent === "" ? null : Number(r.cells[k + 1].textContent))));
    const times = data[0], last = times[times.length - 1];
    whole = [times[0], 2 * last - times[times.length - 2]]; // the last row has its stretch of time, too
    const title = part.querySelector("h2").textContent;
    const details = part.querySelector("details"), box = document.createElement("div"), legend = document.createElement("div");
    details.before(box, legend);
    details.open = false;
    box.className = "plot";
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Chart: " + title + ". Left and right read the values; the figures are in the table after it.");
    legend.className = "keys";
    const p = { box: box, names: heads.map(h => h.textContent), values: [] };
    const width = () => Math.max(200, box.clientWidth);
    const line = function (h) {
      const key = Number(h.dataset.key), alpha = "earlier" in h.dataset ? 0.45 : 1;
      return { label: h.textContent, width: 1.5, alpha: alpha, stroke: () => colour("--k" + key % 6),
        dash: dashes[(key + Math.floor(key / 6)) % 6], spanGaps: false,
        points: { show: true, size: 4, filter: alone } };
    };
    const axis = { stroke: () => colour("--dim"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { stroke: () => colour("--line"), width: 1 }, font: "11px system-ui, sans-serif" };
    p.u = new uPlot({
      width: width(), height: 190, legend: { show: false },
      tzDate: x => uPlot.tzDate(new Date(x * 1000), "Etc/UTC"),
      scales: { y: { range: (_, min, max) => [0, max > 0 ? max * 1.15 : 1] } },
      series: [{}].concat(heads.map(line)),
      axes: [
        Object.assign({ values: (_, list, __, ___, step) => list.map(x => step >= 86400 ? clock(x).slice(5, 10) : clock(x).slice(11, step < 60 ? 19 : 16)), space: 60, size: 30 }, axis),
        Object.assign({ values: (_, list) => list.map(number), size: 56 }, axis),
      ],
      cursor: { y: false, drag: { x: true, y: false }, sync: { key: "period", setSeries: false }, points: { size: 6 } },
      hooks: {
        drawClear: [background],
        drawAxes: [names],
        setScale: [function (u, key) {
          if (key !== "x" || busy || u !== p.u) return;
          const s = u.scales.x, zoomed = s.min > times[0] || s.max < last; // a double click shows all
          show(zoomed ? s.min : whole[0], zoomed ? s.max : whole[1]);
        }],
        setCursor: [() => { if (p.u) read(p, false); }],
      },
    }, data, box);
    heads.forEach(function (h, k) {
      const b = make("button", legend), c = make("canvas", b);
      b.type = "button";
      b.setAttribute("aria-pressed", "true");
      make("span", b, h.textContent);
      p.values.push(make("span", b, ""));
      p.values[k].className = "value";
      c.width = 24;
      c.height = 8;
      c.setAttribute("aria-hidden", "true");
      b.addEventListener("click", function () {
        p.u.setSeries(k + 1, { show: !p.u.series[k + 1].show });
        b.setAttribute("aria-pressed", p.u.series[k + 1].show);
      });
      p.swatch = (p.swatch || []).concat(function () {
        const d = c.getContext("2d"), s = line(h);
        d.clearRect(0, 0, 24, 8);
        d.globalAlpha = s.alpha;
        d.strokeStyle = s.stroke();
        d.lineWidth = 2;
        d.setLineDash(s.dash);
        d.beginPath();
        d.moveTo(0, 4);
        d.lineTo(24, 4);
        d.stroke();
      });
    });
    p.fit = () => p.u.setSize({ width: width(), height: 190 });
    keys(p);
    plots.push(p);
  }

  function paint() {
    for (const p of plots) {
      p.u.redraw(false);
      for (const s of p.swatch) s();
    }
  }
  if (plots.length === 0) return;
  zoom.hidden = false;
  all.addEventListener("click", () => show(whole[0], whole[1]));
  addEventListener("resize", () => { for (const p of plots) p.fit(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  paint();
  show(whole[0], whole[1]);
})();
