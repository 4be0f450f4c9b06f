package api

import (
	"context"
	"net/http"
	"time"

	"trireme/internal/config"
)

// TokenRequest asks for a further token.
type TokenRequest struct {
	Name string        `json:"name"`
	Role string        `json:"role"`              // viewer, operator, admin
	Life time.Duration `json:"life_ns,omitempty"` // 0: until it is removed
}

// TokenView is a token without its secret.
type TokenView struct {
	Name    string     `json:"name"`
	Role    string     `json:"role"`
	Made    *time.Time `json:"made"`    // null: by init
	Expires *time.Time `json:"expires"` // null: never
	Expired bool       `json:"expired,omitempty"`
}

// TokenResult is a new token: shown this once.
type TokenResult struct {
	TokenView
	Token string `json:"token"`
}

// TokenName names one.
type TokenName struct {
	Name string `json:"name"`
}

// tokens lists them, and makes one by POST.
func (s *Server) tokens() http.Handler {
	add := s.control(forLeader(s, Backend.NewToken))
	list := s.private(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), viewTimeout)
		defer cancel()
		writeJSON(w, http.StatusOK, s.opts.Backend.Tokens(ctx))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			add(w, r)
			return
		}
		list(w, r)
	})
}

// NewToken makes a token.
func (c *Client) NewToken(ctx context.Context, req TokenRequest) (TokenResult, error) {
	return ask[TokenResult](ctx, c, http.MethodPost, "/tokens", req)
}

// Tokens lists them.
func (c *Client) Tokens(ctx context.Context) ([]TokenView, error) {
	return ask[[]TokenView](ctx, c, http.MethodGet, "/tokens", nil)
}

// RemoveToken ends one, and the sessions of the dashboard that began with it.
func (c *Client) RemoveToken(ctx context.Context, req TokenName) (TokenView, error) {
	return ask[TokenView](ctx, c, http.MethodPost, "/tokens/remove", req)
}

// RevokeRequest names what is not to be trusted any more.
type RevokeRequest struct {
	What string `json:"what"` // a node's name: all its certificates; or a serial number
}

// RevokeResult is what was done.
type RevokeResult struct {
	Serial  string `json:"serial,omitempty"`
	Node    string `json:"node,omitempty"`
	Message string `json:"message"`
	Advice  string `json:"advice"`
}

// Revoke takes the trust from certificates.
func (c *Client) Revoke(ctx context.Context, req RevokeRequest) (RevokeResult, error) {
	return ask[RevokeResult](ctx, c, http.MethodPost, "/certificates/revoke", req)
}

// RevokedView is what GET /certificates/revoked answers. Those of nodes that are no members any more count as revoked,
// too.
type RevokedView struct {
	Revoked []config.Revocation `json:"revoked"`
}

// revoked lists what `trireme cert revoke` took the trust from.
func (s *Server) revoked(w http.ResponseWriter, _ *http.Request) {
	v := RevokedView{Revoked: s.opts.Backend.Settings().RevokedCerts}
	if v.Revoked == nil {
		v.Revoked = []config.Revocation{}
	}
	writeJSON(w, http.StatusOK, v)
}

// Revoked lists them.
func (c *Client) Revoked(ctx context.Context) (RevokedView, error) {
	return ask[RevokedView](ctx, c, http.MethodGet, "/certificates/revoked", nil)
}
