package dashboard

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// audit is run in a page and lists what is wrong with it for people: contrast (WCAG 1.4.3), reflow (1.4.10), size of targets (2.5.8),
// headings, tables, ids, language.
const audit = `(() => {
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
  for (const s of document.querySelectorAll("[role=img]")) if (!s.getAttribute("aria-label")) bad.push("an image with an empty text");
  for (const e of document.querySelectorAll("[style],[onclick],style,script:not([src])")) bad.push("inline: " + name(e));
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
    const bgs = inside ? [...inside.querySelectorAll("rect[class^=reign]")].map(r => parse(getComputedStyle(r).fill)) : [back(e)];
    for (const bg of bgs) {
      const a = lum(fg), b = lum(bg), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      const text = "contrast " + ratio.toFixed(1) + " of " + fg + " on " + bg;
      if (ratio < 4.5 && !told.has(text)) { told.add(text); bad.push(text + ": " + name(e)); }
    }
  }
  return bad;
})()`

// TestInChromium looks at every page in a browser, wide and narrow, light and dark. With -artifacts it leaves pictures.
func TestInChromium(t *testing.T) {
	c := startChromium(t)
	for _, state := range []struct {
		name string
		fake *fake
	}{{"healthy", healthy()}, {"headless", headless()}, {"troubled", troubled()}} {
		s := serve(t, state.fake)
		state.fake.second = func() { s.advance(8 * time.Second) }
		c.must("Network.clearBrowserCookies", nil, nil)
		c.look(1280, "light")
		c.open(s.URL + "/")
		if state.name == "healthy" {
			c.check(t, "login")
		}
		c.eval(`document.getElementById("token").value = "`+token+`"; window.before = true; document.querySelector("button").click()`, nil)
		c.until(`!window.before && document.getElementById("nodes")`)
		c.until(`document.getElementById("live").textContent === "live"`)
		if state.name != "headless" { // rates take two looks
			c.until(`document.querySelector("#commit table") && document.querySelectorAll("polyline").length == 2`)
		}
		c.check(t, state.name)
		c.named(t)
		if state.name == "troubled" { // a page that is not live any more says so
			_ = s.Listener.Close()
			s.CloseClientConnections()
			c.until(`document.body.classList.contains("stale") && document.getElementById("live").textContent.startsWith("NOT LIVE")`)
			c.picture(t, "stale.png")
		}
		if state.name == "healthy" {
			c.reachable(t)
			c.keepsFocus(t, state.fake)
			c.eval(`window.before = true; document.querySelector("form[action='/ui/switchover'] button").click()`, nil)
			c.until(`!window.before && document.querySelector(".confirm")`)
			c.check(t, "dry-run")
			c.named(t)
			c.open(s.URL + "/")
			c.eval(`window.before = true; document.querySelector("form[action='/ui/remove'] button").click()`, nil)
			c.until(`!window.before && document.querySelector(".confirm")`)
			c.check(t, "remove")
		}
	}
}

// check audits the page as it is, in all forms.
func (c *chromium) check(t *testing.T, name string) {
	t.Helper()
	for _, width := range []int{1280, 360} {
		for _, scheme := range []string{"light", "dark"} {
			c.look(width, scheme)
			c.undisturbed()
			var bad []string
			c.eval(audit, &bad)
			for _, b := range bad {
				t.Errorf("%s at %d, %s: %s", name, width, scheme, b)
			}
			c.picture(t, fmt.Sprintf("%s-%d-%s.png", name, width, scheme))
		}
	}
	for _, text := range c.complaints() {
		t.Errorf("%s: the browser complains: %s", name, text)
	}
	c.look(1280, "light")
}

// picture of the whole page.
func (c *chromium) picture(t *testing.T, name string) {
	t.Helper()
	var shot struct{ Data string }
	c.must("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &shot)
	b, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil || len(b) == 0 {
		t.Fatal(name, err)
	}
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), name), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// named asks the browser's accessibility tree whether everything that one can use has a name.
func (c *chromium) named(t *testing.T) {
	t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
		}
	}
	c.must("Accessibility.getFullAXTree", nil, &tree)
	count := map[any]int{}
	for _, n := range tree.Nodes {
		role, name := n.Role.Value, n.Name.Value
		count[role]++
		if slices.Contains([]any{"button", "link", "textbox", "combobox", "image", "columnheader", "rowheader", "heading"}, role) && !n.Ignored && (name == nil || name == "") {
			t.Errorf("a %v has no name", role)
		}
	}
	if count["button"] == 0 || count["link"] == 0 || count["table"] == 0 || count["columnheader"] == 0 {
		t.Errorf("what one can use is not in the tree: %v", count)
	}
}

// reachable goes through the page by the Tab key: it comes by every control, in order, and each shows that it has the focus.
func (c *chromium) reachable(t *testing.T) {
	t.Helper()
	var want int
	c.eval(`document.activeElement.blur(); document.querySelectorAll("a[href],button,select,input:not([type=hidden])").length`, &want)
	var met []int
	for range want {
		for _, kind := range []string{"rawKeyDown", "keyUp"} {
			c.must("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}, nil)
		}
		var at struct {
			Index   int
			Outline string
		}
		c.eval(`({Index: [...document.querySelectorAll("a[href],button,select,input:not([type=hidden])")].indexOf(document.activeElement),
			Outline: getComputedStyle(document.activeElement).outlineStyle})`, &at)
		if at.Outline == "none" {
			t.Errorf("control %d does not show that it has the focus", at.Index)
		}
		met = append(met, at.Index)
	}
	for i, at := range met {
		if at != i {
			t.Errorf("the Tab key goes to %v, want all %d controls in order", met, want)
			break
		}
	}
}

// keepsFocus: who is at a link in a part that is drawn anew stays there.
func (c *chromium) keepsFocus(t *testing.T, f *fake) {
	t.Helper()
	c.eval(`document.querySelectorAll("#nodes a")[1].focus(); document.querySelector("#nodes table").dataset.old = "1"`, nil)
	f.mu.Lock()
	f.view.Members[2].MySQL = data(0.5, 14<<20)
	f.mu.Unlock()
	c.until(`!document.querySelector("#nodes table").dataset.old`)
	var text string
	c.eval(`document.activeElement.textContent`, &text)
	if text != "n2" {
		t.Errorf("the focus went to %q", text)
	}
}
