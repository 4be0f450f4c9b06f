package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"trireme/internal/core/ha"
)

// quoting is a node that quotes what applications have written.
type quoting struct{ *backend }

const (
	rowError  = `Duplicate entry '"a" <secret@shop.example>' for key 't.k'`
	statement = `ALTER TABLE shop.secret ADD k INT`
)

func (q quoting) Self(context.Context) MemberView {
	why := "the applier has stopped at entry 7 (a:1: " + statement + "): error 1062: " + rowError
	return MemberView{Name: "n1", Reason: why, Warnings: []string{why},
		Heavy: []HeavyView{{Kind: HeavyDDL, Text: statement}},
		ApplyError: &ApplyErrorView{Number: 1062, Error: rowError, Statement: statement, Entry: statement +
			", insert shop.t"}}
}

func (q quoting) View(ctx context.Context) ClusterView {
	m := q.Self(ctx)
	return ClusterView{Cluster: "c1", Members: []MemberView{m}, Blocked: &BlockedView{ApplyErrorView: *m.ApplyError},
		Backup: &BackupView{Copy: &BackupCopy{Place: "s3://secret"}, Archive: &BackupArchive{Place: "s3://secret"}}}
}

func (q quoting) WhyNot(ctx context.Context, node string) (WhyNotView, error) {
	return WhyNotView{Node: node, Reasons: []ha.Reason{{Text: q.Self(ctx).Reason}}}, nil
}

func (q quoting) History(ctx context.Context) ([]Event, error) {
	earlier := "the applier has stopped: Duplicate entry 'a secret of last night' for key 't.k'"
	return []Event{{Kind: "fence", Message: q.Self(ctx).Reason}, {Kind: EventApplyError, Message: earlier},
		{Kind: EventDivergent, Message: earlier},
		{Kind: EventBackup, Message: "in s3://secret", Backup: &BackupCopy{Place: "s3://secret"}}}, nil
}

func (q quoting) Local() Health {
	m := q.Self(context.Background())
	return Health{Name: "n1", State: StateCatchingUp, Reason: m.Reason, ApplyError: m.ApplyError}
}

// TestOpenViewsQuoteNothing: who has not logged in sees neither statements nor values of rows, wherever they are
// quoted; who has sees them.
func TestOpenViewsQuoteNothing(t *testing.T) {
	s := NewServer(Options{Name: "n1", Backend: quoting{&backend{leader: Leader{Name: "n1", Self: true}}}})
	for path, status := range map[string]int{"/cluster": http.StatusOK, "/member": http.StatusOK,
		"/why-not?node=n1": http.StatusOK,
		"/history":         http.StatusOK, "/liveness": http.StatusOK, "/health": http.StatusServiceUnavailable,
		"/primary": http.StatusServiceUnavailable} {
		for token, sees := range map[string]bool{"": false, "guessed": false, "the-viewers": true, operatorToken: true} {
			w := asks(s, http.MethodGet, path, token)
			if !json.Valid(w.Body.Bytes()) || w.Code != status {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
			if got := strings.Contains(w.Body.String(), "secret"); got != sees {
				t.Errorf("%s with %q: %s", path, token, w.Body)
			}
		}
	}
}
