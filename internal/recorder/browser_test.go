package recorder

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"trireme/lab/browser"
	"trireme/lab/needs"
)

// TestInChromium looks at the page in a browser, wide and narrow, light and dark: nothing is fetched, nothing complains, tables and charts can
// be read. With -artifacts it leaves pictures.
func TestInChromium(t *testing.T) {
	needs.Quiet(t) // a browser leaves others no CPU
	c := browser.Start(t)
	page := draw(t, sample())
	var fetched atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fetched.Add(1)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(page))
	}))
	defer s.Close()
	for _, width := range []int{1280, 360} {
		for _, scheme := range []string{"light", "dark"} {
			c.Look(width, scheme)
			c.Open(s.URL + "/")
			var bad []string
			c.Eval(browser.Audit, &bad)
			for _, b := range bad {
				if !strings.HasPrefix(b, "inline: style") { // the page is one file
					t.Errorf("at %d, %s: %s", width, scheme, b)
				}
			}
			c.Picture(t, fmt.Sprintf("report-%d-%s.png", width, scheme))
		}
	}
	for _, text := range c.Complaints() {
		t.Errorf("the browser complains: %s", text)
	}
	var charts, rows int
	c.Eval(`document.querySelectorAll("figure svg path.curve").length`, &charts)
	c.Eval(`document.querySelectorAll("#statements tbody tr").length`, &rows)
	if charts < 20 || rows != 4 {
		t.Errorf("%d lines in charts, %d statements", charts, rows)
	}
	if n := fetched.Load(); n != 4 {
		t.Errorf("%d requests for 4 visits: the page fetches something", n)
	}
}
