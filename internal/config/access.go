package config

import (
	"fmt"
	"strconv"
	"time"
)

// keyReadLogin is the setting of who may look.
const keyReadLogin = "read_login"

// MaxAPITokens of one cluster: they travel with every change of the settings.
const MaxAPITokens = 64

// APIToken lets somebody ask the HTTP API. The token itself is known to its holder only.
type APIToken struct {
	Name    string    `json:"name"`
	Role    string    `json:"role"` // a pki.Role
	Hash    string    `json:"hash"` // pki.HashToken
	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
}

// GoodAt says whether it has not expired.
func (t APIToken) GoodAt(at time.Time) bool { return t.Expires.IsZero() || at.Before(t.Expires) }

// accessSettings lists those of this file.
func (c *Cluster) accessSettings() []Setting {
	return []Setting{{keyReadLogin, strconv.FormatBool(c.ReadLogin),
		"true: /cluster, /history, /load, /metrics, /member, /config and /why-not need a token or certificate, too; health checks never do"}}
}

// setReadLogin changes it. With c nil it only says what is wrong with the value.
func (c *Cluster) setReadLogin(value string) error {
	on, err := strconv.ParseBool(value)
	if err != nil {
		return fmt.Errorf("%s: %q is neither true nor false", keyReadLogin, value)
	}
	if c != nil {
		c.ReadLogin = on
	}
	return nil
}

// checkAccess says what is wrong with the tokens.
func (c *Cluster) checkAccess() error {
	if n := len(c.APITokens); n > MaxAPITokens {
		return fmt.Errorf("cluster settings: %d tokens; there may be %d", n, MaxAPITokens)
	}
	seen := map[string]bool{}
	for _, t := range c.APITokens {
		if t.Name == "" || t.Role == "" || t.Hash == "" || seen[t.Name] {
			return fmt.Errorf("cluster settings: token %q is incomplete, or there twice", t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}
