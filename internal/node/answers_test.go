package node

import (
	"testing"

	"trireme/internal/api"
)

// TestAnswers: a node answers every verb and query that is declared, each once; the API server does a few by itself.
func TestAnswers(t *testing.T) {
	left := map[string]bool{}
	for _, r := range api.Requests() {
		left[r.Method+" "+r.Path] = true
	}
	for _, servers := range []string{"POST /quiet", "POST /force-quorum", "GET /certificates/revoked", "GET /period"} {
		delete(left, servers)
	}
	for _, a := range new(Node).answers() {
		name := a.Method + " " + a.Path
		if !left[name] {
			t.Errorf("%s is answered twice", name)
		}
		delete(left, name)
	}
	for name := range left {
		t.Errorf("%s is not answered", name)
	}
}
