package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"trireme/internal/api"
)

// Pace of what is live.
const (
	frameInterval = time.Second
	frameFresh    = 1500 * time.Millisecond // a frame younger than this is shown as it is
	linger        = time.Minute             // the watch goes on for that long after the last viewer
	streamWrite   = 5 * time.Second         // for one message to a slow reader
	streamBeat    = 15 * time.Second        // a sign of life when nothing has changed
	maxStreams    = 32
)

// sections are the parts of the page that are replaced while one looks, by the id of their element and the name of
// their template.
var sections = []string{"head", "alerts", "picture", "outlook", "tiles", "joining", "nodes", "clients", "busy",
	"commit", "changes", "events"}

// frame is the cluster at one moment, and its live parts as HTML.
type frame struct {
	at    time.Time
	state *state
	html  map[string]string
}

// watch draws frames as long as somebody looks.
type watch struct {
	src  Source
	now  func() time.Time
	ctx  context.Context // ends with the pages
	stop context.CancelFunc
	done sync.WaitGroup

	drawing sync.Mutex // held while a frame is made; guards series
	series  series

	mu      sync.Mutex
	running bool
	streams int
	looked  time.Time // when somebody last looked
	frame   *frame
	drawn   chan struct{} // closed and replaced at each frame
}

func newWatch(src Source, now func() time.Time) *watch {
	ctx, stop := context.WithCancel(context.Background())
	return &watch{src: src, now: now, ctx: ctx, stop: stop, drawn: make(chan struct{})}
}

// close ends the watch. There must be no viewer any more.
func (w *watch) close() {
	w.mu.Lock()
	w.stop()
	w.mu.Unlock()
	w.done.Wait()
	w.src.Rest()
}

// look gives a frame that is not older than a moment, and has more drawn from now on.
func (w *watch) look(ctx context.Context) *frame {
	w.mu.Lock()
	w.looked = w.now()
	f := w.frame
	if !w.running && w.ctx.Err() == nil {
		w.running = true
		w.done.Go(w.run)
	}
	w.mu.Unlock()
	if f != nil && w.now().Sub(f.at) < frameFresh {
		return f
	}
	return w.draw(ctx)
}

// run draws until the last viewer has gone.
func (w *watch) run() {
	tick := time.NewTicker(frameInterval)
	defer tick.Stop()
	asked, answer := time.Time{}, make(chan *busy, 1) // one question at a time
	for {
		if now := w.now(); now.Sub(asked) >= busyEvery {
			asked = now.Add(time.Hour) // not before there is an answer
			w.done.Go(func() { answer <- busyOf(w.src.Report(w.ctx, now.Add(-busySpan), now)) })
		}
		select {
		case <-tick.C:
		case b := <-answer:
			asked = w.now()
			w.drawing.Lock()
			w.series.busy = b
			w.drawing.Unlock()
			continue
		case <-w.ctx.Done():
			return
		}
		w.mu.Lock()
		if w.streams == 0 && w.now().Sub(w.looked) > linger {
			w.running, w.frame = false, nil
			w.mu.Unlock()
			w.drawing.Lock()
			w.series = series{}
			w.drawing.Unlock()
			w.src.Rest()
			return
		}
		w.mu.Unlock()
		w.draw(w.ctx)
	}
}

// draw makes a frame and tells who waits for one. Who comes while another is being made takes that.
func (w *watch) draw(ctx context.Context) *frame {
	asked := w.now()
	w.drawing.Lock()
	defer w.drawing.Unlock()
	w.mu.Lock()
	f := w.frame
	w.mu.Unlock()
	if f != nil && f.at.After(asked) {
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	v := w.src.View(ctx)
	events, err := w.src.History(ctx)
	loads := w.src.Loads(ctx, v)
	f = &frame{at: w.now()}
	w.series.add(f.at, v, loads)
	f.state = describe(v, w.src.Node(), events, err, &w.series, f.at)
	f.html = map[string]string{}
	for _, name := range sections {
		var b bytes.Buffer
		if err := pages.ExecuteTemplate(&b, name, f.state); err != nil {
			fmt.Fprintf(&b, "this part cannot be drawn") // a defect of a template, which the tests draw all of
		}
		f.html[name] = b.String()
	}
	w.mu.Lock()
	w.frame = f
	close(w.drawn)
	w.drawn = make(chan struct{})
	w.mu.Unlock()
	return f
}

// join counts one more stream; false: there are enough.
func (w *watch) join() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streams >= maxStreams {
		return false
	}
	w.streams++
	return true
}

func (w *watch) leave() {
	w.mu.Lock()
	w.streams--
	w.looked = w.now()
	w.mu.Unlock()
}

// newest is the last frame, and what is closed when there is another.
func (w *watch) newest() (*frame, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frame, w.drawn
}

// stream sends the parts of the page that have changed, until the client goes, its session ends or the node stops.
func (p *Pages) stream(w http.ResponseWriter, r *http.Request) {
	sess := p.session(r)
	if sess == nil {
		http.Error(w, "not logged in", http.StatusUnauthorized)
		return
	}
	if !p.watch.join() {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many people look at this node's dashboard; another node's shows the same",
			http.StatusServiceUnavailable)
		return
	}
	defer p.watch.leave()
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Time{}) // no more is read, and the limit of a request would end the stream
	w.Header().Set("Content-Type", "text/event-stream")
	p.watch.look(r.Context())
	sent := map[string]string{}
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	for text := "retry: 2000\n\n"; ; {
		f, drawn := p.watch.newest()
		if f != nil {
			text += changed(sent, f)
		}
		_ = conn.SetWriteDeadline(time.Now().Add(streamWrite))
		if _, err := io.WriteString(w, text); err != nil || conn.Flush() != nil {
			return
		}
		text = ""
		select {
		case <-drawn:
		case <-beat.C:
			text = ": still here\n\n"
		case <-r.Context().Done():
			return
		case <-p.opts.Stopping:
			return
		}
		if p.sessions.check(cookieValue(r, p.cookie)) == nil {
			_, _ = io.WriteString(w, "event: over\ndata: session\n\n")
			return
		}
	}
}

func cookieValue(r *http.Request, name string) string {
	if c, err := r.Cookie(name); err == nil {
		return c.Value
	}
	return ""
}

// changed is the message with the parts that differ from what was sent; empty when none does.
func changed(sent map[string]string, f *frame) string {
	parts := map[string]string{}
	for name, html := range f.html {
		if sent[name] != html {
			sent[name], parts[name] = html, html
		}
	}
	if len(parts) == 0 {
		return ""
	}
	b, err := json.Marshal(parts)
	if err != nil {
		return "" // strings always can be
	}
	return fmt.Sprintf("event: frame\ndata: %s\n\n", b)
}

// series is what was counted over the last minutes, for rates and charts.
type series struct {
	nodes map[string][]sample // of each node, oldest first
	rate  []point             // of the cluster's commits per second
	delay []point             // of the mean time of a commit, in seconds
	busy  *busy               // nil: not known yet
}

type sample struct {
	at   time.Time
	load api.LoadView
}

type point struct {
	at    time.Time
	value float64
	known bool
}

const (
	rateSpan  = 10 * time.Second // that rates, means and quantiles are taken over
	chartSpan = 2 * time.Minute
)

// add takes one look at the counters of all nodes.
func (s *series) add(at time.Time, v api.ClusterView, loads map[string]api.LoadView) {
	if s.nodes == nil {
		s.nodes = map[string][]sample{}
	}
	members := map[string]bool{}
	for _, m := range v.Members {
		members[m.Name] = true
		l, ok := loads[m.Name]
		list := s.nodes[m.Name]
		if n := len(list); !ok || n > 0 && l.AgeS < list[n-1].load.AgeS {
			list = nil // silent, or another life
		}
		if ok {
			list = append(list, sample{at, l})
		}
		for len(list) > 2 && at.Sub(list[0].at) > rateSpan {
			list = list[1:]
		}
		s.nodes[m.Name] = list
	}
	for name := range s.nodes {
		if !members[name] {
			delete(s.nodes, name)
		}
	}
	s.rate = appendPoint(s.rate, at, s.commitRate(v))
	total, known := s.since(v.Leader).commit(api.StageTotal)
	s.delay = appendPoint(s.delay, at, point{value: total.Mean(), known: known && total.Count > 0})
}

func appendPoint(list []point, at time.Time, p point) []point {
	p.at = at
	list = append(list, p)
	for at.Sub(list[0].at) > chartSpan {
		list = list[1:]
	}
	return list
}

// commitRate is of the last second: as the leader counts, and where it does not answer as any other node sees it.
func (s *series) commitRate(v api.ClusterView) point {
	names := []string{v.Leader}
	for _, m := range v.Members {
		names = append(names, m.Name)
	}
	for _, name := range names {
		list := s.nodes[name]
		if len(list) < 2 {
			continue
		}
		a, b := list[len(list)-2], list[len(list)-1]
		if age := b.load.AgeS - a.load.AgeS; age > 0 {
			return point{value: float64(b.load.Transactions-min(a.load.Transactions, b.load.Transactions)) / age, known: true}
		}
	}
	return point{}
}

// span is two looks at one node's counters, rateSpan apart at most.
type span struct {
	a, b  api.LoadView
	known bool
}

func (s *series) since(name string) span {
	list := s.nodes[name]
	if len(list) < 2 {
		return span{}
	}
	return span{list[0].load, list[len(list)-1].load, true}
}

// commit is what a stage took in the span.
func (s span) commit(stage string) (api.Histogram, bool) {
	return s.b.Commits[stage].Since(s.a.Commits[stage]), s.known
}
