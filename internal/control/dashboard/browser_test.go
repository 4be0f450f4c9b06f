package dashboard

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/lab/browser"
	"trireme/lab/needs"
)

// chromium looks at the dashboard.
type chromium struct{ *browser.Chromium }

// TestInChromium looks at every page in a browser, wide and narrow, light and dark. With -artifacts it leaves pictures.
func TestInChromium(t *testing.T) {
	needs.Quiet(t) // a browser leaves others no CPU
	c := &chromium{browser.Start(t)}
	for _, state := range []struct {
		name string
		fake *fake
	}{{"healthy", healthy()}, {"headless", headless()}, {"silent", silent()}, {"fresh", fresh()},
		{"troubled", troubled()}} {
		s := serve(t, state.fake)
		state.fake.second = func() { s.advance(8 * time.Second) }
		c.Must("Network.clearBrowserCookies", nil, nil)
		c.Look(1280, "light")
		c.Open(s.URL + "/")
		if state.name == "healthy" {
			c.check(t, "login")
		}
		c.Eval(`document.getElementById("token").value = "`+token+
			`"; window.before = true; document.querySelector("button").click()`, nil)
		c.Until(`!window.before && document.getElementById("nodes")`)
		c.Until(`document.getElementById("live").textContent === "live"`)
		if state.fake.view.Leader != "" { // rates take two looks
			c.Until(`document.querySelector("#commit table") && document.querySelectorAll("polyline").length == 2`)
		}
		c.check(t, state.name)
		c.named(t)
		if state.name == "troubled" || state.name == "headless" { // a page that is not live any more says so
			_ = s.Listener.Close()
			s.CloseClientConnections()
			c.Until(
				`document.body.classList.contains("stale") && document.getElementById("live").textContent.startsWith("NOT LIVE")`)
			var known []string // what it still shows as if it knew
			c.Eval(`[...document.querySelectorAll("#nodes .state, #tiles .unit, #head .facts, #commit, .now, #picture li, #outlook li, #clients td, #busy")].map(e => e.textContent).filter(s => !s.includes("unknown"))`, &known)
			if len(known) > 0 {
				t.Errorf("a page that is not live shows %q", known)
			}
			c.Eval(`[...document.querySelectorAll("#drawing text")].map(e => e.textContent).filter(s => /healthy|session|lag|ms|log /.test(s))
				.concat([...document.querySelectorAll("#drawing .flows path, #drawing .link")].map(e => "a flow"))`, &known)
			if len(known) > 0 {
				t.Errorf("the picture of a page that is not live shows %q", known)
			}
			c.Until(`document.querySelector("#alerts").textContent.includes("does not answer") && document.querySelectorAll("#alerts .alert").length == 1`)
			c.check(t, "stale "+state.name)
		}
		if state.name == "healthy" {
			c.drawn(t)
			c.noticesSilence(t)
			c.reachable(t)
			c.keepsFocus(t, state.fake)
			c.Eval(`window.before = true; document.querySelector("form[action='/ui/switchover'] button").click()`, nil)
			c.Until(`!window.before && document.querySelector(".confirm")`)
			c.check(t, "dry-run")
			c.named(t)
			c.Open(s.URL + "/")
			c.Eval(`window.before = true; document.getElementById("name").value = "n3"; document.querySelector("form[action='/ui/remove'] button").click()`, nil)
			c.Until(`!window.before && document.querySelector(".confirm")`)
			c.check(t, "remove")
			c.adds(t, s, state.fake)
			c.goesElsewhere(t, s, state.fake)
			c.Must("Network.clearBrowserCookies", nil, nil) // who may only look
			c.Open(s.URL + "/")
			c.Eval(`document.getElementById("token").value = "`+viewToken+
				`"; window.before = true; document.querySelector("button").click()`, nil)
			c.Until(`!window.before && document.getElementById("nodes")`)
			c.check(t, "viewer")
			c.named(t)
			c.reachable(t)
		}
	}
}

// TestPeriodInChromium looks at the charts: on the dashboard, and as one file, which fetches nothing. They can be
// zoomed and read by keys, and a browser without scripts shows their figures.
func TestPeriodInChromium(t *testing.T) {
	needs.Quiet(t)
	c := &chromium{browser.Start(t)}
	f := healthy()
	s := serve(t, f)
	c.Look(1280, "light")
	c.Open(s.URL + "/")
	c.Eval(`document.getElementById("token").value = "`+viewToken+
		`"; window.before = true; document.querySelector("button").click()`, nil)
	c.Until(`!window.before && document.getElementById("nodes")`)
	week := recorded(7*24*time.Hour, time.Hour)
	quiet := recorded(time.Hour, 30*time.Second)
	for n := range quiet.Nodes {
		quiet.Nodes[n].Buckets, quiet.Nodes[n].Statements, quiet.Nodes[n].Sessions, quiet.Nodes[n].FileWaits = nil, nil, nil,
			nil
	}
	quiet.Events = nil
	for name, r := range map[string]api.Report{"failover": recorded(time.Hour, 30*time.Second), "week": week,
		"empty": quiet} {
		f.report = r
		c.Open(s.URL + "/ui/period")
		var plots int
		c.Eval(`document.querySelectorAll(".plot canvas").length`, &plots)
		if want := map[bool]int{true: 0, false: 17}[name == "empty"]; plots != want {
			t.Errorf("%s: %d charts, want %d", name, plots, want)
		}
		c.check(t, "period-"+name)
		if name == "week" {
			c.Document(name, 1280, 1000)
		}
	}
	f.report = recorded(time.Hour, 30*time.Second)
	c.Open(s.URL + "/ui/period")
	c.named(t)
	// Dragging over one chart zooms in to the same part of all, and the form asks for that with more detail.
	var from, to string
	var at struct{ X, Y, Width float64 }
	c.Eval(`(() => { const o = document.querySelector(".u-over"); o.scrollIntoView({ block: "center" }); const b = o.getBoundingClientRect();
		return { X: b.left, Y: b.top + 50, Width: b.width }; })()`, &at)
	for i, kind := range []string{"mouseMoved", "mousePressed", "mouseMoved", "mouseMoved", "mouseReleased"} {
		x := at.X + at.Width*[]float64{0.25, 0.25, 0.3, 0.5, 0.5}[i]
		c.Must("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": at.Y, "button": "left", "buttons": 1,
			"clickCount": 1}, nil)
	}
	c.Until(`document.querySelector("[name=from]").value.startsWith("2026-11-22 11:1")`)
	c.Eval(`document.querySelector("[name=from]").value`, &from)
	c.Eval(`document.querySelector("[name=to]").value`, &to)
	if from < "2026-11-22 11:14:00Z" || from > "2026-11-22 11:16:00Z" || to < "2026-11-22 11:29:00Z" ||
		to > "2026-11-22 11:31:00Z" {
		t.Errorf("a zoom from %s to %s", from, to)
	}
	c.Picture(t, "period-zoomed.png")
	c.Eval(`document.querySelector("#zoom button").click()`, nil)
	c.Eval(`document.querySelector("[name=from]").value`, &from)
	if from != "2026-11-22 11:00:00Z" {
		t.Errorf("all from %s", from)
	}
	// By keys: the values, a zoom, and all again.
	c.Eval(`document.querySelector(".plot").focus()`, nil)
	c.Must("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": 1, "y": 1}, nil) // off the chart
	c.press("Home")
	c.press("ArrowRight")
	c.Until(`document.getElementById("reading").textContent.startsWith("2026-11-22 11:00:30Z · n1 leads · n1 826")`)
	c.press("+")
	c.Until(`!document.querySelector("#zoom button").disabled`)
	c.press("Escape")
	c.Until(`document.querySelector("#zoom button").disabled`)
	c.Eval(`document.querySelector(".keys button").click()`, nil)
	c.Until(`document.querySelector(".keys button").getAttribute("aria-pressed") === "false"`)
	c.compares(t, s, f)

	page := written(t, f.report, nil)
	var fetched atomic.Int32
	file := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetched.Add(1)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, page)
	}))
	defer file.Close()
	c.Open(file.URL + "/")
	c.Until(`document.querySelectorAll(".plot canvas").length === 17`)
	var bad []string
	c.Eval(browser.Audit, &bad)
	for _, b := range bad {
		if !strings.HasPrefix(b, "inline: ") { // it is one file
			t.Errorf("file: %s", b)
		}
	}
	c.Picture(t, "period-file.png")
	if n := fetched.Load(); n != 1 {
		t.Errorf("%d requests for one visit: the file fetches something", n)
	}
	c.Must("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	c.Must("Page.navigate", map[string]any{"url": file.URL + "/plain"}, nil)
	c.Until(`location.pathname === "/plain" && document.readyState === "complete"`)
	var rows int
	c.Eval(`[...document.querySelectorAll(".overtime details[open] tbody tr")].filter(r => r.checkVisibility()).length`,
		&rows)
	if rows != 17*120 {
		t.Errorf("without scripts %d rows are shown", rows)
	}
	for _, text := range c.Complaints() {
		t.Errorf("the browser complains: %s", text)
	}
}

// press presses a key and lets it go.
func (c *chromium) press(key string) {
	for _, kind := range []string{"keyDown", "keyUp"} {
		c.Must("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key}, nil)
	}
}

// compares: the form asks for an earlier period as well, whose lines have the colours of this one's, lighter, and whose
// values are read out with them.
func (c *chromium) compares(t *testing.T, s *served, f *fake) {
	t.Helper()
	f.before = before(f.report, time.Hour)
	c.Open(s.URL + "/ui/period")
	c.Eval(`window.before = true; document.querySelector("[name=compare]").value = "previous"; document.querySelector(".choose button").click()`, nil)
	c.Until(`!window.before && document.querySelectorAll(".plot canvas").length === 17`)
	c.Until(`location.search.endsWith("&compare=previous") && document.querySelector("[name=compare]").value === "previous"`)
	c.Until(`document.getElementById("earlier").textContent.includes("2026-11-22 10:00:00Z to 2026-11-22 11:00:00Z")`)
	var lines []struct {
		Name   string
		Colour [4]int // red, green, blue, opacity
	}
	c.Eval(`[...document.querySelectorAll("section[aria-labelledby=commits-h] .keys button")].map(b => ({ Name: b.children[1].textContent,
		Colour: [...b.querySelector("canvas").getContext("2d").getImageData(1, 3, 1, 1).data] }))`, &lines)
	if len(lines) != 6 {
		t.Fatalf("the lines are %v", lines)
	}
	for i := 0; i < len(lines); i += 2 {
		now, then := lines[i], lines[i+1]
		if then.Name != now.Name+", earlier" || then.Colour[3] >= now.Colour[3] || then.Colour[3] == 0 {
			t.Errorf("%v is not the lighter line of %v", then, now)
		}
		for k := range 3 {
			if d := then.Colour[k] - now.Colour[k]; d < -4 || d > 4 { // a light pixel is stored less exactly
				t.Errorf("%v has another colour than %v", then, now)
			}
		}
	}
	c.Eval(`document.querySelector(".plot").focus()`, nil)
	c.press("Home")
	c.Until(`document.getElementById("reading").textContent.startsWith("2026-11-22 11:00:00Z · n1 leads · n1 800 · n1, earlier 400 · ")`)
	c.press("Escape")
	c.check(t, "period-compared")
	c.Document("compare", 1280, 1000)
	f.before = api.Report{}
}

// check audits the page as it is, in all forms.
func (c *chromium) check(t *testing.T, name string) {
	t.Helper()
	for _, width := range []int{1280, 360} {
		for _, scheme := range []string{"light", "dark"} {
			c.Look(width, scheme)
			c.Undisturbed()
			c.Until(`![...document.querySelectorAll(".plot")].some(p => p.firstElementChild.offsetWidth > p.clientWidth)`)
			var bad []string
			c.Eval(browser.Audit, &bad)
			for _, b := range bad {
				t.Errorf("%s at %d, %s: %s", name, width, scheme, b)
			}
			c.Picture(t, fmt.Sprintf("%s-%d-%s.png", name, width, scheme))
		}
	}
	for _, text := range c.Complaints() {
		t.Errorf("%s: the browser complains: %s", name, text)
	}
	c.Look(1280, "light")
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
	c.Must("Accessibility.getFullAXTree", nil, &tree)
	count := map[any]int{}
	for _, n := range tree.Nodes {
		role, name := n.Role.Value, n.Name.Value
		count[role]++
		if slices.Contains([]any{"button", "link", "textbox", "combobox", "image", "columnheader", "rowheader", "heading"},
			role) && !n.Ignored && (name == nil || name == "") {
			t.Errorf("a %v has no name", role)
		}
	}
	if count["button"] == 0 || count["link"] == 0 || count["table"] == 0 || count["columnheader"] == 0 {
		t.Errorf("what one can use is not in the tree: %v", count)
	}
}

// reachable goes through the page by the Tab key: it comes by every control, in order, and each shows that it has the
// focus.
func (c *chromium) reachable(t *testing.T) {
	t.Helper()
	var want int
	c.Eval(`document.activeElement.blur(); [...document.querySelectorAll("a[href],button,select,summary,input:not([type=hidden])")].filter(e => e.checkVisibility()).length`, &want)
	var met []int
	for range want {
		for _, kind := range []string{"rawKeyDown", "keyUp"} {
			c.Must("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": "Tab", "code": "Tab",
				"windowsVirtualKeyCode": 9}, nil)
		}
		var at struct {
			Index   int
			Outline string
		}
		c.Eval(`({Index: [...document.querySelectorAll("a[href],button,select,summary,input:not([type=hidden])")].filter(e => e.checkVisibility()).indexOf(document.activeElement),
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

// drawn: the picture has what its sentences say and names itself, ages go on between two frames, and who wants no
// motion has none.
func (c *chromium) drawn(t *testing.T) {
	t.Helper()
	var texts []string
	c.Eval(`[...document.querySelectorAll("#drawing text")].map(e => e.textContent)`, &texts)
	for _, want := range []string{"Clients: 72 sessions through the nodes' routers", "n1", "leader", "zone berlin",
		"ping 0.24 ms", "lag 0.4 s", "log #1\u202f841\u202f233", "24 sessions", "● healthy", "1.0 MiB/s of log from n1"} {
		if !slices.Contains(texts, want) {
			t.Errorf("the picture does not show %q but %q", want, texts)
		}
	}
	c.Until(`document.querySelector("#drawing svg").getAttribute("aria-label") === "n1 leads and sends its log to n2, n3. Log: 1.0 MiB/s."`)
	c.Until(`getComputedStyle(document.querySelector("#drawing .flows")).animationName === "flow" && document.querySelectorAll("#drawing .flows path").length === 2`)
	c.Must("Emulation.setEmulatedMedia",
		map[string]any{"features": []any{map[string]any{"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
	c.Until(`getComputedStyle(document.querySelector("#drawing .flows")).animationName === "none"`)
	c.Look(1280, "light")
	// between two looks at the clock
	c.Eval(`Date.now = (now => { let ahead = 0; return () => now() + (ahead += 1500); })(Date.now)`, nil)
	c.Until(`!document.body.classList.contains("stale") && [...document.querySelectorAll("#drawing text, #picture .age")].filter(e => /^(1\.[5-9]|[2-9]\.\d) s/.test(e.textContent)).length === 6`)
	c.Open(c.at(t))
	c.Until(`document.getElementById("live").textContent === "live"`)
}

// adds: the way to a new node shows the copy of its data as it comes.
func (c *chromium) adds(t *testing.T, s *served, f *fake) {
	t.Helper()
	c.Open(s.URL + "/")
	c.Until(`document.querySelector("#busy table")`)
	c.Eval(`document.getElementById("new").value = "n4"; window.before = true; document.querySelector("form[action='/ui/add'] button").click()`, nil)
	c.Until(`!window.before && document.getElementById("jointoken") && document.getElementById("live").textContent === "live" && document.querySelector(".waits").checkVisibility()`)
	before := f.View(t.Context())
	n4 := member(4, "n4", api.RoleLearner, api.StateSeeding, data(0, 0))
	n4.Seed = &api.SeedView{From: "n2", DoneBytes: 40 << 30, TotalBytes: 112 << 30, BytesPerSecond: 100 << 20}
	f.show(append(slices.Clip(before.Members), n4))
	c.Until(`document.getElementById("joining").textContent.includes("n4 copies the data of n2: 40.0 GiB of about 112 GiB, 36%, about 12 min left") && !document.querySelector(".waits").checkVisibility()`)
	c.check(t, "add")
	f.show(before.Members)
}

// goesElsewhere: a link to another node brings a code along that logs in there; without one it leads to the login form.
func (c *chromium) goesElsewhere(t *testing.T, s *served, f *fake) {
	t.Helper()
	n1 := healthy()
	n1.here = "n1"
	f.others = map[string]*served{"n1": serve(t, n1)}
	c.Open(s.URL + "/")
	c.Until(`document.getElementById("live").textContent === "live"`)
	c.Eval(`document.querySelector("a[data-elsewhere=n1]").click()`, nil)
	c.Until(`location.hostname === "localhost" && document.activeElement.closest("#login") && document.getElementById("token").value.startsWith("trd1.") && location.hash === ""`)
	c.Eval(`document.activeElement.click()`, nil)
	c.Until(`document.getElementById("nodes") && document.querySelector("h1").textContent.includes("as n1 sees it")`)
	c.Open(s.URL + "/")
	c.Until(`document.getElementById("live").textContent === "live"`)
	for _, text := range c.Complaints() {
		t.Errorf("the browser complains: %s", text)
	}
	c.Eval(`{ const a = document.querySelector("a[data-elsewhere=n3]"); a.href = "/ui/login"; a.click(); }`, nil)
	c.Until(`location.pathname === "/ui/login" && document.getElementById("token")`)
	c.Complaints() // of the answer
}

// at is where the page is.
func (c *chromium) at(t *testing.T) (url string) {
	t.Helper()
	c.Eval(`location.href`, &url)
	return url
}

// noticesSilence: a connection that brings nothing any more, as of a host that is lost, is noticed without its end;
// what comes next is shown whole.
func (c *chromium) noticesSilence(t *testing.T) {
	t.Helper()
	// a minute passes between two looks
	c.Eval(`window.clock = Date.now; let ahead = 0; Date.now = () => window.clock() + (ahead += 60000)`, nil)
	c.Until(`document.body.classList.contains("stale")`)
	c.Eval(`Date.now = window.clock`, nil)
	c.Until(`!document.body.classList.contains("stale") && ![...document.querySelectorAll("#nodes .state")].some(e => e.textContent.includes("unknown"))`)
}

// keepsFocus: the focus stays on a link in a part that is drawn again.
func (c *chromium) keepsFocus(t *testing.T, f *fake) {
	t.Helper()
	c.Eval(`document.querySelectorAll("#nodes a")[1].focus(); document.querySelector("#nodes table").dataset.old = "1"`,
		nil)
	f.mu.Lock()
	f.view.Members[2].MySQL = data(0.5, 14<<20)
	f.mu.Unlock()
	c.Until(`!document.querySelector("#nodes table").dataset.old`)
	var text string
	c.Eval(`document.activeElement.textContent`, &text)
	if text != "n2" {
		t.Errorf("the focus went to %q", text)
	}
}
