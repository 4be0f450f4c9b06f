package api

import (
	"context"
	"time"

	"trireme/internal/base/config"
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

// ReplaceRequest asks for another password of trireme_clone.
type ReplaceRequest struct{}

// ReplaceResult is what is under way then.
type ReplaceResult struct {
	Message string `json:"message"`
	Advice  string `json:"advice"`
}

// RevokedView is what GET /certificates/revoked answers. Those of nodes that are no members any more count as revoked,
// too.
type RevokedView struct {
	Revoked []config.Revocation `json:"revoked"`
}

// revoked lists what `trireme cert revoke` took the trust from.
func (s *Server) revoked(context.Context) RevokedView {
	v := RevokedView{Revoked: s.opts.Backend.Settings().RevokedCerts}
	if v.Revoked == nil {
		v.Revoked = []config.Revocation{}
	}
	return v
}
