package cli

import (
	"net/http"
	"reflect"

	"trireme/internal/api"
)

// told is a request as docs/api.md tells it.
type told struct {
	api.Request
	Who    string // may ask, if it is not told by the role
	Params [][2]string
}

// Who may ask without a role.
const (
	openUnless = "everybody, or viewer (`read_login`)"
	openAlways = "everybody"
	withinTime = "how long the answer may take, such as `2s` (the default); 10 s at most"
)

// paramsOf are the parameters of the declared requests that have some.
var paramsOf = map[string][][2]string{
	"GET /period": {{"from", "its beginning, RFC 3339, such as `2026-11-23T02:40:00Z`"},
		{"to", "its end"}, {"node", "whose records; left out: those of the node that is asked. Another one is asked by it"}},
}

// views are the requests that everybody may make. They are routed in api/server.go and are not among the declared ones;
// TestViewsAreTold holds this list against it.
var views = []told{
	view[api.ClusterView]("/cluster", openUnless, "The whole cluster, as the node that is asked knows it."),
	view[any]("/member", openUnless, "The node that is asked, as one of the members of `GET /cluster`."),
	view[[]api.Event]("/history", openUnless, "The latest events, the oldest first."),
	view[api.LoadView]("/load", openUnless,
		"What the node that is asked has counted since its daemon started. Two answers make rates."),
	view[api.WhyNotView]("/why-not", openUnless, "Why a node cannot lead. The leader is asked, if it can be reached.",
		[2]string{"node", "its name"}),
	view[any]("/metrics", openUnless, "The [metrics](metrics.md), as text for Prometheus."),

	view[api.RouteView]("/route", openAlways, "Where connections should go, for routers: a stream of lines, each an "+
		"object. A line comes with each change, and twice a second.", [2]string{"router",
		"with a token: a name by which a planned switchover waits for the router (`POST /quiet`)"}),
	view[struct {
		Index uint64 `json:"index"`
	}]("/serves", openAlways, "200 if the node takes writes now, else 503.",
		[2]string{"epoch", "as `rw.epoch` of `GET /route` has it"}),
	view[api.Outcome]("/outcome", openAlways, "What became of a statement whose connection was lost.",
		[2]string{"node", "where the connection was"}, [2]string{"epoch", "of its mysqld, as in `GET /route`"},
		[2]string{"thread", "`CONNECTION_ID()` of the connection"},
		[2]string{"index", "up to which the log was known before the connection began"},
		[2]string{"after", "the GTID of the last transaction that was answered; may be empty"},
		[2]string{"sole", "`true`: the connection has committed one transaction at most since then"},
		[2]string{"others", "or how many more, at most, all answered before"}, [2]string{"wait", withinTime}),
	view[api.ReadIndexView]("/read-index", openAlways, "A point in the log that a read must not be older than; a "+
		"majority has confirmed it.", [2]string{"gtids", "`true`: with the GTIDs up to there"},
		[2]string{"live", "`true`: with the nodes that count as live"}, [2]string{"wait", withinTime}),
	view[api.AppliedView]("/applied", openAlways, "Waits until the node's mysqld has applied something.",
		[2]string{"index", "up to this entry of the log"}, [2]string{"gtids", "these GTIDs"},
		[2]string{"everywhere", "`true`: on all data nodes that count as live"}, [2]string{"wait", withinTime}),

	view[api.Health]("/primary", openAlways, "A health check: 200 if the node takes writes, else 503. "+
		"[Balancers](balancers.md) has all of them; they answer the same object."),
	view[any]("/replica", openAlways, "The health check of a follower or learner that serves reads.", lagParam),
	view[any]("/read-only", openAlways, "The health check of a node that serves reads.", lagParam),
	view[any]("/health", openAlways, "The health check of a node that does what its role asks for."),
	view[any]("/readiness", openAlways, "The health check of a node that is healthy and hears a leader."),
	view[any]("/liveness", openAlways, "The health check of a daemon that answers."),
}

var lagParam = [2]string{"lag", "how far it may lag: `5` (seconds), `500ms` or `16MiB`"}

func view[V any](path, who, what string, params ...[2]string) told {
	answer := reflect.TypeFor[V]()
	if answer.Kind() == reflect.Interface {
		answer = nil // it is no object, or that of another one
	}
	return told{Request: api.Request{Method: http.MethodGet, Path: path, What: what, Answer: answer}, Who: who,
		Params: params}
}
