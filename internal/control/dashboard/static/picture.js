// Draws the sentences of "The picture in words": each node with its figures, the log on its way to it, and its clients.
"use strict";
(function () {
  const words = document.getElementById("picture"), box = document.getElementById("drawing");
  const svg = box.appendChild(element("svg")), shapes = new Map();
  const layers = {};
  for (const name of ["zones", "lines", "flows", "cards", "texts"]) (layers[name] = svg.appendChild(element("g"))).setAttribute("class", name);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-describedby", "picture outlook");
  words.closest("details").open = false;
  let at = Date.now(), used;

  function element(tag) { return document.createElementNS("http://www.w3.org/2000/svg", tag); }

  // What is drawn keeps its element from one drawing to the next: a flow goes on where it was.
  function put(layer, key, tag, attributes, text) {
    let e = shapes.get(layer + key);
    if (!e) shapes.set(layer + key, e = layers[layer].appendChild(element(tag)));
    used.add(layer + key);
    for (const [name, value] of Object.entries(attributes)) if (e.getAttribute(name) !== String(value)) e.setAttribute(name, value);
    if (text !== undefined && e.textContent !== text) e.textContent = text;
  }

  const span = s => s >= 3600 ? (s / 3600).toFixed(1) + " h" : s >= 120 ? (s / 60).toFixed(0) + " min" : s.toFixed(1) + " s";
  const fit = (text, width) => text.length * 7 <= width ? text : text.slice(0, Math.max(1, width / 7 - 1)) + "…";

  function draw() {
    const items = [...words.children], stale = document.body.classList.contains("stale"), late = (Date.now() - at) / 1000;
    const nodes = items.slice(1).map(function (li) {
      const n = JSON.parse(li.dataset.node);
      if (n.age !== null) n.age += late;
      const age = li.querySelector(".age");
      if (age) age.textContent = span(n.age);
      return stale ? { name: n.name, zone: n.zone, role: "", state: "unknown", level: "warn", sign: "?", sessions: -1, age: n.age } : n;
    });
    const gap = 12, width = Math.max(240, box.clientWidth), zoned = nodes.some(n => n.zone) ? 26 : 0;
    const wide = width >= nodes.length * 150;
    const cardW = wide ? Math.min(220, (width - gap) / nodes.length - gap) : width - 56;
    const cardH = wide || !nodes.some(n => n.loss) ? 88 : 104, top = wide ? 64 + zoned : 38;
    used = new Set();
    let y = top, x = (width - nodes.length * (cardW + gap) + gap) / 2, zone = "";
    for (const n of nodes) { // places: next to each other, or on a phone one below the other
      if (!wide && n.zone !== zone) y += zoned;
      zone = n.zone;
      n.x = wide ? x : 28;
      n.y = y;
      n.port = wide ? [n.x + cardW / 2, y + cardH] : [n.x, y + cardH / 2];
      n.ask = wide ? [n.x + cardW / 2, y] : [n.x + cardW, y + cardH / 2];
      if (wide) x += cardW + gap; else y += cardH + gap;
    }
    const last = nodes[nodes.length - 1], end = last.y + cardH, bus = wide ? end + 58 : 8, asks = wide ? 26 : width - 8;
    const on = (p, line) => wide ? [p[0], line] : [line, p[1]];
    const path = points => "M" + points.map(p => p.join(" ")).join("L");
    const say = (key, px, py, kind, text, room) => put("texts", key, "text", { x: px, y: py, class: kind }, fit(text, room || cardW - 16));
    const height = wide ? bus + 26 : end + 26;
    svg.setAttribute("viewBox", "0 0 " + width + " " + height);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    svg.setAttribute("aria-label", stale ? "Not live: how the cluster is now is not known." : items[0].textContent);

    const clients = nodes.reduce((sum, n) => sum + Math.max(0, n.sessions), 0), leader = nodes.find(n => n.leads);
    put("cards", "clients", "rect", { x: 0.5, y: 0.5, width: width - 1, height: 26, class: "bed" });
    say("clients", 10, 18, "strong", stale ? "Clients: not known" : "Clients: " + clients + (clients === 1 ? " session" : " sessions") + (wide ? nodes.some(n => n.sessions < 0) ? " through the routers of the nodes that answer" : " through the nodes' routers" : ""), width - 16);
    const written = leader && items[0].dataset.log ? items[0].dataset.log + " of log from " + leader.name : "No log is written at the moment";
    say("log", 2, wide ? bus + 20 : height - 6, stale || leader ? "dim" : "bad", stale ? "Not live" : leader ? written : "No leader: nothing is written", width);
    nodes.forEach(function (n, i) {
      const first = i === 0 || nodes[i - 1].zone !== n.zone;
      if (n.zone && first) {
        let to = i;
        while (to + 1 < nodes.length && nodes[to + 1].zone === n.zone) to++;
        const size = wide ? { width: nodes[to].x + cardW - n.x + 8, height: cardH + 30 } : { width: cardW + 8, height: nodes[to].y + cardH - n.y + 28 };
        put("zones", n.zone, "rect", Object.assign({ x: n.x - 4, y: n.y - 24, class: "zone" }, size));
        say("zone" + n.zone, n.x + 4, n.y - 9, "dim", "zone " + n.zone, wide ? cardW / 2 - 16 : cardW);
      }
      const busy = n.sessions > 0 && n.level !== "bad";
      put("lines", "ask" + n.name, "path", { d: path(wide ? [on(n.ask, asks), n.ask] : [[asks, 26], on(n.ask, asks), n.ask]), class: busy ? "ask" : "idle" });
      if (!n.leads) {
        const way = leader ? [leader.port, on(leader.port, bus), on(n.port, bus), n.port] : [on(n.port, bus), n.port], [px, py] = n.port;
        put("lines", "log" + n.name, "path", { d: path(way), class: n.cut ? "cut" : n.linked ? "link" : "idle" });
        if (n.flows) put("flows", n.name, "path", { d: path(way) });
        if (n.linked) put("lines", "head" + n.name, "path", { d: wide ? path([[px - 5, py + 8], n.port, [px + 5, py + 8]]) : path([[px - 8, py - 5], n.port, [px - 8, py + 5]]), class: "head" });
      }
      put("cards", n.name, "rect", { x: n.x, y: n.y, width: cardW, height: cardH, rx: 3, class: "bed " + n.level + (n.leads ? " leads" : "") });
      const left = n.x + 10, ends = n.x + cardW - 8, half = cardW / 2 - 10, full = cardW - 18;
      const sessions = n.sessions < 0 ? "" : n.sessions + (n.sessions === 1 ? " session" : " sessions");
      const age = n.age === null ? "never heard" : span(n.age) + " ago";
      const way = n.cut ? "✕ not reached" : n.rtt ? "ping " + n.rtt : (n.linked && !n.leads ? "no pings yet" : ""), lag = n.lag ? "lag " + n.lag : "";
      say("name" + n.name, left, n.y + 20, "strong", n.name, full - 60);
      say("role" + n.name, ends, n.y + 20, n.leads ? "end strong" : "end dim", n.role, 70);
      say("state" + n.name, left, n.y + 39, n.level, n.sign + " " + n.state, full - 70);
      say("age" + n.name, ends, n.y + 39, "end dim", age, 90);
      say("what" + n.name, left, n.y + 58, "", n.copy || (n.log ? "log " + n.log : ""), full);
      say("loss" + n.name, left, n.y + (wide ? 77 : 96), "warn", n.loss ? "▲ " + n.loss : "", full);
      if (wide) {
        say("ask" + n.name, n.ask[0] + 7, 46, "", sessions, cardW / 2);
        say("way" + n.name, n.port[0] + 8, n.port[1] + 22, n.cut ? "bad" : "", way, cardW / 2);
        say("lag" + n.name, n.port[0] + 8, n.port[1] + 40, "", n.leads ? "" : lag, cardW / 2);
      } else {
        say("ask" + n.name, ends, n.y + 77, "end", sessions, half);
        say("way" + n.name, left, n.y + 77, n.cut ? "bad" : "", [way, n.leads ? "" : lag].filter(Boolean).join(" · "), full - 80);
      }
    });
    for (const [key, e] of shapes) if (!used.has(key)) { e.remove(); shapes.delete(key); }
  }

  new MutationObserver(function () { at = Date.now(); draw(); }).observe(words, { childList: true });
  new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  addEventListener("resize", draw);
  setInterval(draw, 1000); // ages go on between two frames
  draw();
})();
