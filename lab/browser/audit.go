package browser

// Audit is run in a page and lists what is wrong with it for people: contrast (WCAG 1.4.3), reflow (1.4.10), size of
// targets (2.5.8), headings, tables, ids, language.
const Audit = `(() => {
  const bad = [];
  const seen = new Set();
  const shown = e => { const r = e.getBoundingClientRect(); const s = getComputedStyle(e); return r.width > 0 && r.height > 0 && s.visibility !== "hidden" && r.right > 0; };
  const name = e => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + (e.className && e.className.baseVal === undefined ? "." + e.className : "") + " «" + e.textContent.trim().slice(0, 30) + "»";
  if (document.documentElement.lang !== "en") bad.push("no language");
  if (!document.title) bad.push("no title");
  if (document.querySelectorAll("h1").length !== 1) bad.push(document.querySelectorAll("h1").length + " h1");
  if (document.querySelectorAll("main").length !== 1) bad.push("not one main");
  for (const e of document.querySelectorAll("[id]")) { if (seen.has(e.id)) bad.push("id twice: " + e.id); seen.add(e.id); }
  let level = 0;
  for (const h of document.querySelectorAll("h1,h2,h3,h4")) { const l = +h.tagName[1]; if (l > level + 1) bad.push("heading level skipped at " + name(h)); level = l; }
  for (const th of document.querySelectorAll("th")) if (!th.scope) bad.push("no scope: " + name(th));
  for (const s of document.querySelectorAll("svg")) if (!s.closest("[aria-hidden],[role=img]")) bad.push("an image without a text");
  for (const s of document.querySelectorAll("[role=img]")) if (!s.getAttribute("aria-label") && !document.getElementById((s.getAttribute("aria-labelledby") || "").split(" ")[0])) bad.push("an image with an empty text");
  for (const e of document.querySelectorAll("[style],[onclick],style,script:not([src])")) if (!e.closest(".uplot")) bad.push("inline: " + name(e)); // a chart's script sets styles, which is allowed
  if (document.documentElement.scrollWidth > innerWidth) {
    bad.push("wider than the window: " + document.documentElement.scrollWidth + " of " + innerWidth);
    for (const e of document.querySelectorAll("main *, header *")) if (e.getBoundingClientRect().right > innerWidth + 1) { bad.push("  " + name(e) + " " + Math.round(e.getBoundingClientRect().right)); break; }
  }
  for (const e of document.querySelectorAll("button,select,input:not([type=hidden])")) if (shown(e) && e.getBoundingClientRect().height < 24) bad.push("small target: " + name(e));
  const parse = c => { const m = c.match(/rgba?\(([^)]+)\)/); return m ? m[1].split(/[ ,\/]+/).map(Number) : [0, 0, 0, 1]; };
  const lum = c => { const f = c.slice(0, 3).map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  const back = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0.99) return c; } return parse(getComputedStyle(document.body).backgroundColor); };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const told = new Set();
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !shown(e) || ["SCRIPT", "STYLE", "TITLE", "NOSCRIPT"].includes(e.tagName.toUpperCase())) continue;
    const s = getComputedStyle(e), inside = e.closest("svg");
    const fg = parse(inside ? s.fill : s.color);
    const bgs = inside ? [...inside.querySelectorAll("rect[class^=reign],rect[class^=bed]")].map(r => parse(getComputedStyle(r).fill)) : [back(e)];
    for (const bg of bgs) {
      const a = lum(fg), b = lum(bg), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      const text = "contrast " + ratio.toFixed(1) + " of " + fg + " on " + bg;
      if (ratio < 4.5 && !told.has(text)) { told.add(text); bad.push(text + ": " + name(e)); }
    }
  }
  return bad;
})()`
