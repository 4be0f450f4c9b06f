package api

import (
	"context"
	"net/http"
	"strings"

	"trireme/internal/base/config"
)

// ConfigHistoryView is what GET /config/history answers.
type ConfigHistoryView struct {
	Cluster   string            `json:"cluster"`
	Version   uint64            `json:"version"` // of the settings now
	Oldest    uint64            `json:"oldest"`  // the lowest version that they can be rolled back to
	Revisions []config.Revision `json:"revisions"`
}

// ConfigRollback takes an earlier version of the settings up again, as a new change.
type ConfigRollback struct {
	To      uint64 `json:"to"`
	Version uint64 `json:"version,omitempty"` // refused unless it is the present one; 0: whatever it is
	DryRun  bool   `json:"dry_run,omitempty"` // only say what would change
}

// ConfigRollbackResult is what was changed, or with DryRun would be.
type ConfigRollbackResult struct {
	Cluster string          `json:"cluster"`
	To      uint64          `json:"to"`
	Version uint64          `json:"version"` // of the settings now
	DryRun  bool            `json:"dry_run"`
	Changes []config.Change `json:"changes"`
	Kept    []string        `json:"kept,omitempty"` // settings of nodes that were no members then: they stay as they are
}

// askedByHeader names, in a request that a node passes on, who asked that node.
const askedByHeader = "Trireme-Asked-By"

// maxAskedBy bounds that name, in bytes.
const maxAskedBy = 200

// askedBy is the key of the name in the context of a verb.
type askedBy struct{}

// AskedBy is the person or program that requested the verb that a Backend carries out, such as "operator from
// 10.0.0.7:51234"; empty: the request did not come from outside.
func AskedBy(ctx context.Context) string {
	name, _ := ctx.Value(askedBy{}).(string)
	return name
}

// WhoAsked is AskedBy without where that one is.
func WhoAsked(ctx context.Context) string {
	by, _ := splitAsker(AskedBy(ctx))
	return by
}

// AskedAs has a verb carried out for somebody: a name as AskedBy tells it.
func AskedAs(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, askedBy{}, name)
}

// askedFrom is between who and where.
const askedFrom = " from "

// asker is a name as AskedBy tells it.
func (a Audited) asker() string {
	if a.From == "" {
		return a.By
	}
	return a.By + askedFrom + a.From
}

// splitAsker takes such a name apart; from is empty if it does not say where.
func splitAsker(name string) (by, from string) {
	if at := strings.LastIndex(name, askedFrom); at >= 0 {
		return name[:at], name[at+len(askedFrom):]
	}
	return name, ""
}

// withAsker notes who asks. A node may name whom it asks for.
func withAsker(r *http.Request, by string) *http.Request {
	return r.WithContext(AskedAs(r.Context(), askerOf(r, by).asker()))
}
