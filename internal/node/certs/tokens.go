package certs

import (
	"context"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
)

const minTokenLife = time.Minute

// NewToken implements api.Backend. Only the hash is kept, in the cluster settings, so that all nodes take the token.
func (cs *Certs) NewToken(ctx context.Context, req api.TokenRequest) (api.TokenResult, error) {
	if err := checkClient(req.Name, req.Role); err != nil {
		return api.TokenResult{}, err
	}
	if req.Life < 0 || req.Life > 0 && req.Life < minTokenLife {
		return api.TokenResult{}, api.Errorf(api.KindInvalid, "a token lives for %s or longer, not %s", minTokenLife,
			req.Life)
	}
	text, hash := pki.NewAPIToken()
	t := config.APIToken{Name: req.Name, Role: req.Role, Hash: hash, Made: time.Now().UTC().Round(0)}
	if req.Life > 0 {
		t.Expires = t.Made.Add(req.Life)
	}
	err := cs.host.Change(ctx, 0, func(c *config.Cluster) error {
		if slices.ContainsFunc(c.APITokens, func(o config.APIToken) bool { return o.Name == t.Name }) {
			return api.Errorf(api.KindAlready, "there is a token %q already", t.Name).
				With("remove it first (trireme token remove %s), or choose another name", t.Name)
		}
		if len(c.APITokens) >= config.MaxAPITokens {
			return api.Errorf(api.KindConflict, "there are %d tokens, which is the most", len(c.APITokens)).
				With("remove one that is not used any more")
		}
		c.APITokens = append(c.APITokens, t)
		return nil
	})
	if err != nil {
		return api.TokenResult{}, err
	}
	return api.TokenResult{TokenView: tokenView(t), Token: text}, nil
}

// RemoveToken implements api.Backend. Requests that have begun end as they may.
func (cs *Certs) RemoveToken(ctx context.Context, req api.TokenName) (v api.TokenView, err error) {
	err = cs.host.Change(ctx, 0, func(c *config.Cluster) error {
		i := slices.IndexFunc(c.APITokens, func(t config.APIToken) bool { return t.Name == req.Name })
		if i < 0 {
			return api.Errorf(api.KindNotFound, "there is no token %q", req.Name).With("see `trireme token list`")
		}
		v = tokenView(c.APITokens[i])
		c.APITokens = slices.Delete(c.APITokens, i, i+1)
		return nil
	})
	return v, err
}

// Tokens implements api.Backend.
func (cs *Certs) Tokens(context.Context) []api.TokenView {
	views := []api.TokenView{{Name: "operator", Role: string(pki.Admin)}}
	for _, t := range cs.host.Settings().APITokens {
		views = append(views, tokenView(t))
	}
	return views
}

func tokenView(t config.APIToken) api.TokenView {
	v := api.TokenView{Name: t.Name, Role: t.Role, Made: &t.Made, Expired: !t.GoodAt(time.Now())}
	if !t.Expires.IsZero() {
		v.Expires = &t.Expires
	}
	return v
}

func checkClient(name, role string) error {
	if err := pki.CheckTokenName(name); err != nil {
		return api.Errorf(api.KindInvalid, "%v", err)
	}
	if _, err := pki.ParseRole(role); err != nil {
		return api.Errorf(api.KindInvalid, "%v", err)
	}
	return nil
}
