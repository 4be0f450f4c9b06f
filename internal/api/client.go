package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/core/ha"
	"trireme/internal/core/transport"
)

// maxAnswer bounds what a client reads.
const maxAnswer = 16 << 20

// dialTimeout is how long connecting may take.
const dialTimeout = 3 * time.Second

// Client asks one node. It may be used from many goroutines.
type Client struct {
	base   string
	router string // ForRouter
	header http.Header
	http   http.Client
}

// NewClient talks to the node at base ("http://host:port" or "https://…"; bare host:port means https). token may be
// empty for requests that only read; over plain HTTP it is never sent, and each request is refused. trust says whose
// certificates are accepted over HTTPS (pki.ClientTLS, pki.JoinTLS, or a node's NodeClientTLS); nil accepts none.
func NewClient(base, token string, trust *tls.Config) *Client {
	if trust == nil {
		trust = &tls.Config{RootCAs: x509.NewCertPool()}
	}
	c := &Client{base: BaseURL(base), header: http.Header{}}
	if token != "" {
		c.header.Set("Authorization", "Bearer "+token)
	}
	c.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			return transport.DialTCP(ctx, addr)
		},
		TLSHandshakeTimeout: 5 * time.Second, MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10, TLSClientConfig: trust,
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

// BaseURL completes an address to a URL.
func BaseURL(addr string) string {
	addr = strings.TrimSuffix(addr, "/")
	if strings.Contains(addr, "://") {
		return addr
	}
	return "https://" + addr
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// URL is the node this client asks.
func (c *Client) URL() string { return c.base }

// Cluster is the whole cluster as the node knows it.
func (c *Client) Cluster(ctx context.Context) (ClusterView, error) {
	return ask[ClusterView](ctx, c, http.MethodGet, "/cluster", nil)
}

// Member is the asked node's own part of it.
func (c *Client) Member(ctx context.Context) (MemberView, error) {
	return ask[MemberView](ctx, c, http.MethodGet, "/member", nil)
}

// History is the latest events, oldest first.
func (c *Client) History(ctx context.Context) ([]Event, error) {
	return ask[[]Event](ctx, c, http.MethodGet, "/history", nil)
}

// WhyNot says why a node does not lead.
func (c *Client) WhyNot(ctx context.Context, node string) (WhyNotView, error) {
	return ask[WhyNotView](ctx, c, http.MethodGet, "/why-not?node="+url.QueryEscape(node), nil)
}

// Check asks a health check such as "/primary" or "/replica?lag=5s".
func (c *Client) Check(ctx context.Context, path string) (ok bool, h Health, err error) {
	status, body, err := c.roundTrip(ctx, http.MethodGet, path, nil)
	if err != nil {
		return false, h, err
	}
	if status != http.StatusOK && status != http.StatusServiceUnavailable {
		return false, h, c.failure(ctx, status, body)
	}
	if err := decode(body, &h); err != nil {
		return false, h, Errorf(KindInternal, "%s%s: %v", c.base, path, err)
	}
	return status == http.StatusOK, h, nil
}

// ask is do with its answer as a result.
func ask[V any](ctx context.Context, c *Client, method, path string, body any) (V, error) {
	var v V
	err := c.do(ctx, method, path, body, &v)
	return v, err
}

// do sends body as JSON and decodes the answer. All errors are *Error.
func (c *Client) do(ctx context.Context, method, path string, body, answer any) error {
	status, data, err := c.roundTrip(ctx, method, path, body)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return c.failure(ctx, status, data)
	}
	if err := decode(data, answer); err != nil {
		return Errorf(KindInternal, "%s%s: the answer is not what this version expects: %v", c.base, path, err)
	}
	return nil
}

// decode is json.Unmarshal, and fails if the answer lacks a field that a node always sends: all of a struct's but those
// that may be omitted. A field that older nodes do not send must be one of these.
func decode(data []byte, answer any) error {
	if err := json.Unmarshal(data, answer); err != nil {
		return err
	}
	t := reflect.TypeOf(answer).Elem()
	if t.Kind() != reflect.Struct {
		return nil
	}
	var sent map[string]json.RawMessage
	if err := json.Unmarshal(data, &sent); err != nil {
		return err
	}
	for _, name := range required(t) {
		if _, ok := sent[name]; !ok {
			return fmt.Errorf("it has no %q", name)
		}
	}
	return nil
}

// required are the fields that an answer must have.
func required(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && !f.Anonymous && name != "-" && !strings.Contains(options, "omit") {
			names = append(names, cmp.Or(name, f.Name))
		}
	}
	return names
}

// request to the node. A token does not go over plain HTTP, on this host neither: anything may listen there.
func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, Errorf(KindInvalid, "%q is not the address of a node: %v", c.base, err)
	}
	if req.URL.Scheme != "https" && c.header.Get("Authorization") != "" {
		return nil, Errorf(KindInvalid, "a token is not sent to %s over plain HTTP", c.base).With("use https://")
	}
	req.Header = c.header.Clone()
	return req, nil
}

func (c *Client) roundTrip(ctx context.Context, method, path string, body any) (status int, data []byte, err error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, nil, Errorf(KindInternal, "%v", err)
		}
		reader = bytes.NewReader(text)
	}
	req, err := c.request(ctx, method, path, reader)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, c.unreachable(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return 0, nil, c.unreachable(ctx, err)
	}
	return res.StatusCode, data, nil
}

func (c *Client) unreachable(ctx context.Context, err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err // without the method and URL, which the message has already
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Errorf(KindTimeout, "%s did not answer in time", c.base).With("see `trireme status`")
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return Errorf(KindInterrupted, "interrupted").With("what was asked of %s may still happen", c.base)
	}
	return Errorf(KindUnreachable, "%s does not answer: %v", c.base, err).
		With("is the daemon running there? --api or TRIREME_API names another node")
}

// failure turns the body of a request that failed back into the error it was. A node that sees that the client gives up
// says so, and on a busy machine the client may still hear that: it is no answer of the node's.
func (c *Client) failure(ctx context.Context, status int, body []byte) error {
	if err := ctx.Err(); err != nil {
		return c.unreachable(ctx, err)
	}
	e := new(Error)
	if err := json.Unmarshal(body, e); err == nil && e.Message != "" && e.Kind != "" {
		return e
	}
	return Errorf(KindInternal, "HTTP status %d: %s", status, strings.TrimSpace(string(body[:min(len(body), 200)])))
}

// DownView is what is known of a member that does not answer.
func DownView(m config.Member, why string) MemberView {
	role := RoleFollower
	if m.Role != config.RoleVoter {
		role = m.Role
	}
	v := MemberView{
		Name: m.Name, Role: role, State: StateDown, Reason: why, ReasonCode: ha.Unreachable,
		Raft:   RaftView{ID: m.ID, Voter: m.Role != config.RoleLearner, Weight: m.Weight},
		Router: RouterView{RWPort: m.RWPort, ROPort: m.ROPort},
		Daemon: DaemonView{API: m.API, Peer: m.Peer},
	}
	if m.Role != config.RoleLogger {
		v.MySQL = &MySQLView{Host: m.MySQLHost, Port: m.MySQLPort, ReadOnly: true}
	}
	return v
}
