package api

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"slices"

	"trireme/internal/base/pki"
)

// The verbs: all that a cluster can be asked to change. This list is the only one: the server's paths and checks, what
// is passed on to the leader, clients, the pages, the audit log and docs/api.md follow it. What may lose data, votes or
// secrets, or lets others in, is the admin's. A node says with By who carries a verb out. Each returns once its change
// is committed, or with the reason why it does not happen.
var (
	Switchover = onLeader[SwitchoverRequest, SwitchoverResult]("/switchover", pki.Operator,
		"Moves leadership, and returns when the new leader takes writes; with dry_run says what would happen.")
	Failover = here[FailoverRequest, FailoverResult]("/failover", pki.Operator,
		"Moves leadership without the leader's help, and returns when the new leader takes writes.")
	Pause  = onLeader[PauseRequest, PauseResult]("/pause", pki.Operator, "Switches automatic failover off.")
	Resume = onLeader[ResumeRequest, PauseResult]("/resume", pki.Operator, "Switches automatic failover on again.")
	Reinit = onLeader[MemberRequest, MemberResult]("/reinit", pki.Operator,
		"Has a member delete its data and copy another node's; returns when it has begun.")
	Delay = here[DelayRequest, DelayResult]("/delay", pki.Operator, "Shows a delayed learner, or gives it an order.")

	ChangeConfig   = onLeader[ConfigChange, ConfigView]("/config", pki.Admin, "Changes settings of the cluster.")
	RollbackConfig = onLeader[ConfigRollback, ConfigRollbackResult]("/config/rollback", pki.Admin,
		"Takes an earlier version of the settings up again.")
	NewToken    = onLeader[TokenRequest, TokenResult]("/tokens", pki.Admin, "Makes a token for this API, shown this once.")
	RemoveToken = onLeader[TokenName, TokenView]("/tokens/remove", pki.Admin,
		"Ends a token, and the sessions of the dashboard that began with it.")
	Revoke = onLeader[RevokeRequest, RevokeResult]("/certificates/revoke", pki.Admin,
		"Takes the trust from a certificate, or from all of a node.")
	ReplacePassword = onLeader[ReplaceRequest, ReplaceResult]("/clone-password", pki.Admin,
		"Replaces the password of trireme_clone, by which nodes copy each other's data.")
	ChangeCA     = onLeader[CARequest, CAView]("/ca", pki.Admin, "Takes a step in a change of the CA.")
	NewJoinToken = onLeader[JoinTokenRequest, JoinTokenResult]("/join-tokens", pki.Admin,
		"Makes an invitation for a node.")
	Join = onLeader[JoinRequest, JoinResult]("/join", "",
		"Uses an invitation up, whose token lets it in; returns once the new member is in the committed settings.")
	Remove = onLeader[MemberRequest, MemberResult]("/remove", pki.Admin,
		"Takes a member, dead or alive, out of the cluster; returns when it has no vote and no record any more.")
	Promote = onLeader[PromoteRequest, MemberResult]("/promote", pki.Admin,
		"Makes learners voters as soon as they have caught up.")
	Demote = onLeader[MemberRequest, MemberResult]("/demote", pki.Admin, "Makes a voter a learner.")
	Leave  = onLeader[LeaveRequest, LeaveResult]("/leave", pki.Admin, "Ends the cluster.")
	Void   = onLeader[VoidRequest, VoidReport]("/void", pki.Admin,
		"Declares void an entry that no node could apply; without a GTID only reports what that would lose.")
	ForceApply = onLeader[VoidRequest, VoidReport]("/force-apply", pki.Admin,
		"Has all nodes apply tolerantly an entry that none could apply; without a GTID only reports.")
	ForceQuorum = here[ForceRequest, ForceReport]("/force-quorum", pki.Admin,
		"Makes a cluster out of the survivors of a lost majority; without confirm only reports.")

	NoteBackup = word[BackupReport, BackupResult]("/backup", pki.Operator,
		"A backup's word of what it has made, for the cluster to show. It is not audited.")
	Quiet = word[QuietRequest, QuietResult]("/quiet", pki.Viewer,
		"A router's word that it has nothing under way, at a switchover. It is not audited.")
)

// The queries: what a node shows of the cluster's settings.
var (
	Config        = view[ConfigView]("/config", "The cluster's settings.")
	ConfigHistory = private[ConfigHistoryView]("/config/history", "The last changes of the settings.")
	Tokens        = private[[]TokenView]("/tokens", "The tokens for this API, without their secrets.")
	Revoked       = private[RevokedView]("/certificates/revoked", "What lost the cluster's trust.")
	CA            = private[CAView]("/ca", "The CAs that the asked node trusts, and where a change of the CA is.")
	// period has its own handler, and Client.Period. Its parameters, and what everybody may read, are told in
	// internal/ops/cli/views.go.
	period = private[PeriodView]("/period", "What the asked node has recorded between two times.")
)

// Request is one of them.
type Request struct {
	Method, Path string
	What         string   // for docs/api.md
	Role         pki.Role // the least that may ask; of a verb none: the request holds what lets it in
	Leader       bool     // only the leader can do it
	Word         bool     // it orders nothing and comes again and again, so it is not audited
	Open         bool     // for everybody unless the cluster setting read_login asks for a viewer
	Body, Answer reflect.Type
}

// declared are all, by "METHOD /path".
var declared = map[string]*Request{}

// Requests are all, by path.
func Requests() []Request {
	var all []Request
	for _, r := range declared {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Request) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
	})
	return all
}

func declare(r Request) *Request {
	declared[r.Method+" "+r.Path] = &r
	return &r
}

// Verb asks for a change: POST, with a Req, answered by a Res.
type Verb[Req, Res any] struct{ *Request }

// verb declares one.
func verb[Req, Res any](r Request) Verb[Req, Res] {
	r.Method, r.Body, r.Answer = http.MethodPost, reflect.TypeFor[Req](), reflect.TypeFor[Res]()
	return Verb[Req, Res]{declare(r)}
}

// onLeader declares a verb that the leader carries out; other nodes pass it on.
func onLeader[Req, Res any](path string, role pki.Role, what string) Verb[Req, Res] {
	return verb[Req, Res](Request{Path: path, Role: role, What: what, Leader: true})
}

// here declares a verb that the node asked carries out, whichever it is.
func here[Req, Res any](path string, role pki.Role, what string) Verb[Req, Res] {
	return verb[Req, Res](Request{Path: path, Role: role, What: what})
}

// word declares what a program tells the node asked.
func word[Req, Res any](path string, role pki.Role, what string) Verb[Req, Res] {
	return verb[Req, Res](Request{Path: path, Role: role, What: what, Word: true})
}

// Ask has the node of c see to it. All errors are *Error.
func (v Verb[Req, Res]) Ask(ctx context.Context, c *Client, req Req) (Res, error) {
	return ask[Res](ctx, c, v.Method, v.Path, req)
}

// By is this node's answer to the verb. do is called from many goroutines, returns when ctx ends, and reports failures
// that an operator should understand as *Error; any other is shown as an internal one.
func (v Verb[Req, Res]) By(do func(context.Context, Req) (Res, error)) Answer {
	a := v.handled(func(s *Server, ctx context.Context, r *http.Request, req Req) (Res, error) {
		return v.does(ctx, s, forwarder(r) != "", req, do)
	})
	a.do = do
	return a
}

// does has do called here, or has the leader carry the verb out where only that can.
func (v Verb[Req, Res]) does(ctx context.Context, s *Server, forwarded bool, req Req,
	do func(context.Context, Req) (Res, error)) (Res, error) {
	if v.Leader {
		return leaderDoes(ctx, s, v.Path, forwarded, req, do)
	}
	return do(ctx, req)
}

// handled is By for one that needs the server or the request.
func (v Verb[Req, Res]) handled(do func(*Server, context.Context, *http.Request, Req) (Res, error)) Answer {
	return Answer{Request: v.Request,
		handler: func(s *Server) http.HandlerFunc { return s.control(v.Request, carryOut(s, do)) }}
}

// Query asks for something to look at: GET, answered by a V.
type Query[V any] struct{ *Request }

// view declares a query that is open as read_login says.
func view[V any](path, what string) Query[V] { return query[V](path, what, true) }

// private declares a query for viewers.
func private[V any](path, what string) Query[V] { return query[V](path, what, false) }

func query[V any](path, what string, open bool) Query[V] {
	return Query[V]{declare(Request{Method: http.MethodGet, Path: path, What: what, Role: pki.Viewer, Open: open,
		Answer: reflect.TypeFor[V]()})}
}

// Ask the node of c. All errors are *Error.
func (q Query[V]) Ask(ctx context.Context, c *Client) (V, error) {
	return ask[V](ctx, c, q.Method, q.Path, nil)
}

// By is this node's answer to the query, from memory.
func (q Query[V]) By(of func(context.Context) V) Answer {
	return Answer{Request: q.Request, handler: func(s *Server) http.HandlerFunc {
		guard := s.private
		if q.Open {
			guard = s.view
		}
		return guard(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), viewTimeout)
			defer cancel()
			writeJSON(w, http.StatusOK, of(ctx))
		})
	}}
}

// Answer is who answers a verb or a query on a node.
type Answer struct {
	*Request
	do      any // of a verb, for the pages: func(context.Context, Req) (Res, error)
	handler func(*Server) http.HandlerFunc
}

// own are the answers that the server gives itself.
func (s *Server) own() []Answer {
	return []Answer{
		Quiet.handled((*Server).quiet), ForceQuorum.handled((*Server).forceQuorum), Revoked.By(s.revoked),
	}
}

// Do carries a verb out for somebody on a page, as if it had come by HTTP.
func Do[Req, Res any](ctx context.Context, c *Console, v Verb[Req, Res], req Req) (res Res, err error) {
	who, err := fromPage(ctx, v.Path)
	if err != nil {
		c.Refused(ctx, v.Path)
		return res, err
	}
	do, ok := c.s.verbs[v.Path].(func(context.Context, Req) (Res, error))
	if !ok {
		return res, Errorf(KindNotFound, "this node does not answer to %s", v.Path)
	}
	ctx, cancel := context.WithTimeout(AskedAs(ctx, who.asker()), controlTimeout)
	defer cancel()
	res, err = v.does(ctx, c.s, false, req, do)
	c.s.auditAction(who, v.Path, req, err)
	return res, err
}
