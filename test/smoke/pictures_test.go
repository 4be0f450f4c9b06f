package smoke

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/control/dashboard"
	"trireme/internal/ops/demo"
	"trireme/lab/browser"
	"trireme/lab/needs"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

// TestPictures is `make pictures`: the dashboard of a real cluster, as docs/dashboard.md shows it.
func TestPictures(t *testing.T) {
	if !browser.WantsPictures() {
		t.Skip("make pictures writes files of the documentation")
	}
	needs.MySQL(t)
	kit := testkit.Clusters{Name: "pictures", Dir: t.TempDir()}
	c := kit.Start(t, demo.Options{Nodes: 3, Dir: filepath.Join(t.TempDir(), "shop")})
	t.Cleanup(func() {
		testkit.ShowLogs(t, c)
		c.Kill()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	v, err := c.WaitHealthy(ctx)
	must(t, err)
	poll(t, "zones", func() error {
		_, err := api.ChangeConfig.Ask(ctx, c.Client(c.Node(v.Leader)),
			api.ConfigChange{Set: map[string]string{"zone.n1": "aachen", "zone.n2": "berlin", "zone.n3": "celle"}})
		return err
	})
	at, away := c.Node("n3"), c.Node("n1") // the page is n3's; n1 leads, and is lost later
	if v.Leader != away.Name {
		_, err = c.Switchover(ctx, away.Name)
		must(t, err)
	}

	began := time.Now()
	b := browser.Start(t)
	b.Look(1280, "light")
	client := c.Client(at)
	code, err := client.LoginCode(ctx)
	must(t, err)
	b.Open(dashboard.LoginLink(client.URL(), code))
	b.Eval(`window.before = true; document.querySelector("#login button").click()`, nil)
	b.Until(`!window.before && document.getElementById("live") && document.getElementById("live").textContent === "live"`)
	b.Until(`document.querySelectorAll("#drawing .link").length === 2 && document.querySelector("#alerts .good") && document.querySelector("#busy h3")`)
	b.Document("empty", 1280, 800)

	// Before there are XA transactions: a server that has run some cannot be copied until it is started again.
	place := filepath.Join(os.TempDir(), "shop-backup") // its name is on the pictures
	must(t, os.Mkdir(place, 0o700))
	t.Cleanup(func() { _ = os.RemoveAll(place) })
	keep := exec.Command(testkit.Program(t, testkit.Trireme), "backup", "--to", place, "--follow",
		"--config", filepath.Join(at.Dir, config.NodeFileName))
	must(t, keep.Start())
	t.Cleanup(func() { _ = errors.Join(keep.Process.Kill(), keep.Wait()) })
	b.Until(`document.getElementById("tiles").textContent.includes("can be restored")`)
	w, err := verify.New(verify.Config{Login: c.Routed(), Database: "shop", Writers: 8, Rate: 20, Mixed: true})
	must(t, err)
	t.Cleanup(func() { _ = w.Stop() })
	must(t, w.Prepare(ctx))
	w.Start(context.WithoutCancel(ctx))
	goesOn(t, w, "for the pictures")
	for _, to := range []string{"n2", "n1"} { // a history
		poll(t, "a switchover to "+to, func() error { _, err := c.Switchover(ctx, to); return err })
	}
	b.Until(`document.querySelectorAll("#busy tbody").length === 2 && document.querySelector("#commit table") && document.querySelector("#alerts .good")`)
	b.Document("busy", 1280, 900)
	b.Picture(t, "busy.png")
	b.Look(360, "dark")
	b.Document("phone", 360, 1000)
	b.Picture(t, "phone.png")
	b.Look(1280, "light")
	stamp := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
	b.Open(client.URL() + "/ui/period?" + url.Values{"from": {stamp(began)}, "to": {stamp(time.Now())}}.Encode())
	b.Document("charts", 1280, 1000)
	b.Picture(t, "charts.png")

	// There is no leader for a moment, and a page each second: it stays as it is when it shows that. If the moment was
	// too short, again.
	for seen := false; ; {
		b.Open(client.URL() + "/")
		b.Until(`document.getElementById("live").textContent === "live" && document.querySelector("#commit table") && document.querySelector("#head .facts b").textContent === "n1"`)
		b.Eval(`new MutationObserver(() => { if (document.querySelector("#alerts .loud")) { window.seen = true; const at = Date.now(); Date.now = () => at; document.getElementById = () => null; } }).observe(document.getElementById("alerts"), { childList: true })`, nil)
		must(t, c.SignalHost(away, syscall.SIGSTOP))
		b.Until(`window.seen || document.querySelector("#head .facts b").textContent !== "n1"`)
		if b.Eval(`!!window.seen`, &seen); seen {
			break
		}
		must(t, c.SignalHost(away, syscall.SIGCONT))
		poll(t, "n1 leads again", func() error { _, err := c.Switchover(ctx, away.Name); return err })
	}
	b.Document("failing-over", 1280, 800)
	b.Open(client.URL() + "/")
	b.Until(`document.querySelectorAll("#drawing .link").length === 1 && document.querySelector("#drawing text.bad") && document.querySelector("#commit table") && !document.querySelector("#alerts .loud")`)
	b.Document("node-lost", 1280, 800)
	c.KillDaemon(c.Node("n2"))
	b.Until(`document.querySelectorAll("#nodes tr.bad").length === 2 && document.querySelector("#alerts .loud")`)
	b.Document("quorum-lost", 1280, 800)
}
