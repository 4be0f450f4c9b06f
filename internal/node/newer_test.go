package node

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"trireme/internal/base/config"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/transport"
	"trireme/internal/node/delay"
	"trireme/internal/node/leadership"
	"trireme/internal/node/leave"
	"trireme/internal/node/recovery"
	"trireme/internal/node/seeding"
)

// TestNewerLocalState: a version that was gone back to keeps in node.json what a newer one has put there, and does not
// start upon what it must not ignore; nor does it upon such a decision in generation.json.
func TestNewerLocalState(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("node.json", strings.Replace(string(golden(t, "node.json")), "{", `{"later": {"x": [1]}, `, 1))
	f, err := openLocalFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // by two lives
		if err := f.update(func(s *localState) { s.Durable++ }); err != nil {
			t.Fatal(err)
		}
		if f, err = openLocalFile(dir); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Durable uint64 `json:"durable_index"`
		Later   struct{ X []int }
		Led     []uint64
	}
	err = json.Unmarshal(b, &got)
	kept := got.Durable == goldenState().Durable+2 && len(got.Later.X) == 1
	if err != nil || !kept || strings.Count(string(b), `"led"`) != 1 {
		t.Errorf("%v: %s", err, b)
	}
	write("node.json", `{"needs": 2, "incarnation": "of another form"}`)
	if _, err := openLocalFile(dir); !errors.Is(err, config.ErrNewer) {
		t.Errorf("node.json of a newer version: %v", err)
	}
	write("generation.json", `{"needs": 2, "takeover": "of another form"}`)
	if _, err := recovery.Load(raftlog.OSFS{}, dir); !errors.Is(err, config.ErrNewer) {
		t.Errorf("generation.json of a newer version: %v", err)
	}
}

// TestOrdersOfNewerVersions: what another node orders is refused if this version knows a part of it only. A copy of
// data is such an order too: its donor says what the data follows.
func TestOrdersOfNewerVersions(t *testing.T) {
	n := newTestNode(t, as(2))
	close(n.ready)
	h := handler{n, n.requests()}
	for name, kind := range map[string]uint8{"failover": leadership.ReqForce.Number, "delay": delay.ReqDelay.Number,
		"heal": seeding.ReqHeal.Number, "plain": leave.ReqPlain.Number} {
		_, err := h.HandleRequest(t.Context(), 1, kind, []byte(`{"later":true}`))
		if err == nil || !strings.Contains(err.Error(), "later") || !strings.Contains(err.Error(), "upgrade this node") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := seeding.ReqDonate.Ask(t.Context(), answers(`{"incarnation":1}`), 2, transport.None{}); err != nil {
		t.Error(err)
	}
	_, err := seeding.ReqDonate.Ask(t.Context(), answers(`{"incarnation":1,"later":1}`), 2, transport.None{})
	if err == nil || !strings.Contains(err.Error(), "later") {
		t.Errorf("a copy is taken of which something is not understood: %v", err)
	}
}

// answers is a member that says one thing.
type answers string

func (a answers) Request(context.Context, uint64, uint8, []byte) ([]byte, error) {
	return []byte(a), nil
}

// TestRequestsAreDocumented: docs/format/peer.md lists each kind of request once, and none that is not answered.
func TestRequestsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "format", "peer.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n## Requests\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	var told, answered []int
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(section, -1) {
		kind, _ := strconv.Atoi(row[1])
		told = append(told, kind)
	}
	for _, a := range newTestNode(t).requests() {
		answered = append(answered, int(a.Number))
	}
	if slices.Sort(answered); !slices.Equal(told, answered) {
		t.Errorf("the page has %d, answered are %d", told, answered)
	}
}
