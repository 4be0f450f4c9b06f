// Package browser is a browser without a window that tests look at pages with.
package browser

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Chromium is a browser without a window, spoken to in its debugging protocol over two pipes: one JSON text after the
// other, each ended by a zero byte.
type Chromium struct {
	t       *testing.T
	to      *os.File
	session string // of the page
	visited bool   // it is at one of the pages

	mu      sync.Mutex
	last    int
	answers map[int]chan json.RawMessage
	events  []string // of the page that are complaints
	gone    bool
}

type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Start begins one, or skips the test where there is no such browser.
func Start(t *testing.T) *Chromium {
	t.Helper()
	program := ""
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "chromium-headless-shell",
		"google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("there is no Chromium to look at the pages with: install the package chromium, or set $CHROMIUM")
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "trireme-chromium-") // not t.TempDir: its processes may write for a moment longer
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--hide-scrollbars", "--no-first-run", "--ignore-certificate-errors", "--disable-background-networking",
		"--user-data-dir="+dir, "--remote-debugging-pipe", "about:blank")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.ExtraFiles = []*os.File{theirs, write}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirs.Close(), write.Close()
	c := &Chromium{t: t, to: ours, answers: map[int]chan json.RawMessage{}}
	read := make(chan struct{})
	go func() { defer close(read); c.read(answers) }()
	t.Cleanup(func() {
		_, _ = c.Ask("Browser.close", nil)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_ = ours.Close()
		<-read
		_ = answers.Close()
		for end := time.Now().Add(5 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(end); {
			<-time.After(50 * time.Millisecond)
		}
	})
	if _, err := c.Ask("Browser.getVersion", nil); err != nil {
		t.Skipf("%s does not run here: %v", program, err)
	}
	var target struct{ TargetID string }
	c.Must("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	c.Must("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	c.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Network", "Log", "DOM", "Accessibility"} {
		c.Must(domain+".enable", nil, nil)
	}
	return c
}

// read takes answers and complaints until the browser ends.
func (c *Chromium) read(from *os.File) {
	in := bufio.NewReader(from)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			break
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		c.mu.Lock()
		switch {
		case m.ID != 0 && c.answers[m.ID] != nil:
			if m.Error != nil {
				close(c.answers[m.ID])
			} else {
				c.answers[m.ID] <- m.Result
			}
			delete(c.answers, m.ID)
		case m.Method == "Runtime.exceptionThrown" || m.Method == "Log.entryAdded" &&
			!bytes.Contains(m.Params, []byte(`"level":"verbose"`)) && !bytes.Contains(m.Params, []byte("net::ERR_")) ||
			m.Method == "Page.javascriptDialogOpening":
			c.events = append(c.events, m.Method+": "+string(m.Params))
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	for id, a := range c.answers {
		close(a)
		delete(c.answers, id)
	}
}

var errChromium = errors.New("chromium refused, or is gone")

func (c *Chromium) Ask(method string, params any) (json.RawMessage, error) {
	c.mu.Lock()
	if c.gone {
		c.mu.Unlock()
		return nil, errChromium
	}
	c.last++
	id, got := c.last, make(chan json.RawMessage, 1)
	c.answers[id] = got
	c.mu.Unlock()
	ask := map[string]any{"id": id, "method": method}
	if params != nil {
		ask["params"] = params
	}
	if c.session != "" && method != "Browser.close" {
		ask["sessionId"] = c.session
	}
	b, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	if _, err := c.to.Write(append(b, 0)); err != nil {
		return nil, err
	}
	select {
	case res, ok := <-got:
		if !ok {
			return nil, fmt.Errorf("%s: %w", method, errChromium)
		}
		return res, nil
	case <-time.After(time.Minute):
		return nil, fmt.Errorf("%s: no answer within a minute", method)
	}
}

func (c *Chromium) Must(method string, params, result any) {
	c.t.Helper()
	res, err := c.Ask(method, params)
	if err == nil && result != nil {
		err = json.Unmarshal(res, result)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// Eval runs JavaScript in the page and gives its value.
func (c *Chromium) Eval(script string, result any) {
	c.t.Helper()
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	c.Must("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true, "awaitPromise": true}, &out)
	if out.ExceptionDetails != nil {
		c.t.Fatalf("%s: %s", script, out.ExceptionDetails)
	}
	if result != nil {
		if err := json.Unmarshal(out.Result.Value, result); err != nil {
			c.t.Fatalf("%s: %s: %v", script, out.Result.Value, err)
		}
	}
}

// Undisturbed skips the test if the browser gave up loading something because a network interface of this machine came
// or went (ERR_NETWORK_CHANGED, whatever the address). Tests with emulated networks that run at the same time cause
// that.
func (c *Chromium) Undisturbed() {
	c.t.Helper()
	res, err := c.Ask("Runtime.evaluate", map[string]any{"returnByValue": true, "expression": `document.readyState === "complete" && document.body !== null &&
		(document.body.classList.contains("neterror") || ![...document.styleSheets].some(s => s.cssRules.length > 50))`})
	var out struct{ Result struct{ Value bool } }
	if err == nil && json.Unmarshal(res, &out) == nil && out.Result.Value && c.visited {
		c.t.Skip("the network of this machine changed while Chromium was loading a page")
	}
}

// Until waits for an expression to be true.
func (c *Chromium) Until(expression string) {
	c.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		var ok bool
		if res, err := c.Ask("Runtime.evaluate", map[string]any{"expression": "!!(" + expression + ")",
			"returnByValue": true}); err == nil {
			var out struct{ Result struct{ Value bool } }
			ok = json.Unmarshal(res, &out) == nil && out.Result.Value
		}
		if ok {
			return
		}
		c.Undisturbed()
		if time.Now().After(deadline) {
			c.t.Fatalf("never true: %s", expression)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Open goes to a page and waits until it is there.
func (c *Chromium) Open(url string) {
	c.t.Helper()
	c.Eval("window.before = true", nil)
	c.Must("Page.navigate", map[string]any{"url": url}, nil)
	c.Until("!window.before && document.readyState === 'complete'")
	c.visited = true
	c.Undisturbed()
}

// Look sets the size of the window, in CSS pixels, and the colour scheme.
func (c *Chromium) Look(width int, scheme string) {
	c.t.Helper()
	c.Must("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1,
		"mobile": false}, nil)
	c.Must("Emulation.setEmulatedMedia",
		map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Complaints are what the page's console has said since it was last asked: errors, refusals of the content security
// policy, dialogs.
func (c *Chromium) Complaints() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.events
	c.events = nil
	return list
}

// Picture of the whole page is left among the artifacts of a test.
func (c *Chromium) Picture(t *testing.T, name string) {
	t.Helper()
	var shot struct{ Data string }
	c.Must("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &shot)
	b, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil || len(b) == 0 {
		t.Fatal(name, err)
	}
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), name), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// pictures is where those of the documentation go.
var pictures = flag.String("pictures", "", "directory for the pictures of the documentation")

// WantsPictures says whether this run is to make the pictures of the documentation.
func WantsPictures() bool { return *pictures != "" }

// Document keeps the top of the page as a picture of the documentation, if this run is to make those.
func (c *Chromium) Document(name string, width, height int) {
	c.t.Helper()
	if !WantsPictures() {
		return
	}
	var shot struct{ Data []byte }
	c.Must("Page.captureScreenshot", map[string]any{"format": "webp", "quality": 80, "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}, &shot)
	if err := os.WriteFile(filepath.Join(*pictures, name+".webp"), shot.Data, 0o644); err != nil {
		c.t.Fatal(err)
	}
}
