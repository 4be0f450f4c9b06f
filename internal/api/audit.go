package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"trireme/internal/base/pki"
)

// Audited is a control verb that this node was asked for by somebody who may, and what became of it.
type Audited struct {
	Verb string // as in its path, without the slash
	// By is what was shown: "operator", the token that init made, "token NAME (ROLE)", "node" or "join token".
	By      string
	From    string          // where the request came from, host:port; after "dashboard " if it was made there
	Via     string          // the node that has forwarded it, which then tells By and From
	Request json.RawMessage // as it was sent; of join the node's name alone; nil: it is no JSON
	Error   string          // empty: it was carried out
}

// What is shown to be let in.
const (
	byOperator  = "operator"
	byNode      = "node"
	byJoinToken = "join token"

	byToken = "token "
)

// audited is the answer to a control verb.
type audited struct {
	http.ResponseWriter
	problem string
}

// Unwrap is for http.ResponseController.
func (a *audited) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// audit carries a verb out and records it.
func (s *Server) audit(w http.ResponseWriter, r *http.Request, v *Request, by string, verb http.HandlerFunc) {
	if s.opts.Audit == nil || v.Word {
		verb(w, r)
		return
	}
	var body bytes.Buffer
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r.Body, &body), r.Body}
	answer := &audited{ResponseWriter: w}
	verb(answer, r)
	rec := askerOf(r, by)
	rec.Verb, rec.Error = strings.TrimPrefix(r.URL.Path, "/"), answer.problem
	if by == byJoinToken {
		if answer.problem != "" {
			return // anybody may try
		}
		rec.Request = joined(body.Bytes())
	} else if json.Valid(body.Bytes()) {
		rec.Request = body.Bytes()
	}
	s.opts.Audit(rec)
}

// forwarder is the node that has passed a request on; empty: the one who asks came here. Only a node's certificate
// proves that.
func forwarder(r *http.Request) string {
	if r.Header.Get(forwardedBy) == "" || !isNode(r) {
		return ""
	}
	id, _ := pki.IdentityOf(r.TLS.PeerCertificates[0]) // isNode has read it
	return id.Name
}

// askerOf is who asks, and from where, by what was shown here, or by what the node says that has passed the request on.
func askerOf(r *http.Request, by string) Audited {
	rec := Audited{By: by, From: r.RemoteAddr, Via: forwarder(r)}
	if told := r.Header.Get(askedByHeader); rec.Via != "" && told != "" {
		told = strings.ToValidUTF8(told[:min(len(told), maxAskedBy)], "")
		rec.By, rec.From = splitAsker(told)
	}
	return rec
}

// joined is who joins: the request itself holds the token.
func joined(body []byte) json.RawMessage {
	var req JoinRequest
	_ = json.Unmarshal(body, &req) // it was read before
	name, _ := json.Marshal(struct {
		Node string `json:"node"`
	}{req.Member.Name})
	return name
}

// fromPages marks requests of this node's own pages with where they come from.
type fromPages struct{}

// fromPage is who asks on a page, and may.
func fromPage(ctx context.Context, path string) (Audited, error) {
	p, _ := ctx.Value(principal{}).(Principal)
	who := Audited{By: p.By, From: "dashboard"}
	if from, ok := ctx.Value(fromPages{}).(string); ok {
		who.From += " " + from
	}
	return who, p.need("POST " + path)
}

// auditAction records a verb that did not come by HTTP; rec says who asked.
func (s *Server) auditAction(rec Audited, path string, req any, err error) {
	if s.opts.Audit == nil {
		return
	}
	rec.Verb = strings.TrimPrefix(path, "/")
	if err != nil {
		rec.Error = err.Error()
	}
	rec.Request, _ = json.Marshal(req) // a request always can be
	s.opts.Audit(rec)
}
