package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/mysqld"
	"trireme/internal/node/membership"
	"trireme/internal/pki"
)

// reqClone has no body; answered with the present login of trireme_clone (config.Account), as far as the node has it.
// Only members can ask.
const reqClone uint8 = 57

// shared are the secrets that all nodes have.
func (n *Node) shared() config.Secrets {
	n.secretsMu.Lock()
	defer n.secretsMu.Unlock()
	return n.secrets
}

// toldToNewcomer are the secrets that a new node gets: those that nodes share, and logins of its own.
func (n *Node) toldToNewcomer() config.Secrets {
	s := n.shared()
	s.RenewLogins()
	return s
}

// knowsClone says whether a password is the one that settings tell of.
func knowsClone(c *config.Cluster, a config.Account) bool {
	return c.CloneHash == "" || pki.TokenMatches(a.Password, c.CloneHash)
}

// tendClone keeps the password of trireme_clone from former members. Every account of Trireme's but that one logs in
// from its own host alone. The leader replaces it in mysqld, where the log brings it to all servers, and then commits
// its hash; members ask each other for what fits the hash. Whatever dies in between, the next leader begins again: by
// the mark in the settings, or because no member has what fits.
func (n *Node) tendClone(ctx context.Context) {
	c := n.Settings()
	err := n.fetchClone(ctx, c)
	if c.Rotate || err != nil {
		n.mu.Lock()
		s, requested := n.lives.Status(), n.request != nil
		n.mu.Unlock()
		if l := s.Life(); l != nil && s.Opens(l) && !requested {
			err = n.replaceClone(ctx, s.Term(), l.Admin().SetPassword)
		}
	}
	text := ""
	if err != nil && ctx.Err() == nil {
		text = err.Error()
	}
	if text != n.cloneProblem && text != "" {
		n.log.Warn("the password of trireme_clone is not the new one here yet", "err", text)
	}
	n.cloneProblem = text
}

// ReplacePassword has trireme_clone get another password, as it does by itself when a node is shut out.
func (n *Node) ReplacePassword(ctx context.Context, _ api.ReplaceRequest) (res api.ReplaceResult, err error) {
	_, err = n.members.Change(ctx, 0, func(c *config.Cluster) error {
		if c.Rotate {
			return api.Errorf(api.KindAlready, "trireme_clone is being given another password now")
		}
		c.Rotate = true
		return nil
	})
	return api.ReplaceResult{Message: "trireme_clone gets another password, which takes about a second",
		Advice: "`trireme cert ca` says which members do not have it yet"}, err
}

// replaceClone gives trireme_clone another password, as the leader of a term. set is mysqld's part, which returns when
// it is committed.
func (n *Node) replaceClone(ctx context.Context, term uint64, set func(context.Context, mysqld.Account) error) error {
	login := config.Account{User: n.shared().Clone.User, Password: config.NewToken()}
	if err := set(ctx, mysqld.Account(login)); err != nil {
		return err
	}
	at := n.cons.Status().Commit
	if err := n.keepClone(login); err != nil {
		return err
	}
	_, err := n.members.Change(ctx, term, func(c *config.Cluster) error {
		c.CloneHash, c.CloneAt, c.Rotate = pki.HashToken(login.Password), at, false
		return nil
	})
	if err == nil {
		n.log.Info("trireme_clone has a new password", "index", at)
		n.history.add(n.event("secrets", at, "trireme_clone, by which nodes copy data, has a new password"))
	}
	return err
}

// fetchClone asks the other members for the login that settings tell of, unless this node has it.
func (n *Node) fetchClone(ctx context.Context, c *config.Cluster) error {
	if knowsClone(c, n.shared().Clone) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, membership.Timeout)
	defer cancel()
	var errs []error
	for _, m := range c.Members {
		if m.ID == n.id.ID {
			continue
		}
		var login config.Account
		body, err := n.tr.Request(ctx, m.ID, reqClone, nil)
		if err == nil {
			err = json.Unmarshal(body, &login)
		}
		if err == nil && (login.User == "" || !knowsClone(c, login)) {
			err = errors.New("it sent another password than the settings tell of")
		}
		if err == nil {
			return n.keepClone(login)
		}
		errs = append(errs, fmt.Errorf("%s: %w", m.Name, err))
	}
	return fmt.Errorf("no member gives it: %w", errors.Join(errs...))
}

// keepClone replaces the login here, durably.
func (n *Node) keepClone(login config.Account) error {
	n.secretsMu.Lock()
	defer n.secretsMu.Unlock()
	next := n.secrets
	next.Clone = login
	if err := next.Save(n.cfg.Dir); err != nil {
		return err
	}
	n.secrets = next
	n.log.Info("this node has a new password of trireme_clone")
	return nil
}

// cloneFor answers another node that is to stay a member.
func (n *Node) cloneFor(from uint64) ([]byte, error) {
	c := n.Settings()
	if m, ok := c.MemberByID(from); !ok || m.Removing || c.WhyRevoked(from, "") != "" {
		return nil, fmt.Errorf("node %d is not a member, or not for long", from)
	}
	login := n.shared().Clone
	if !knowsClone(c, login) {
		return nil, errors.New("it does not have it either")
	}
	return json.Marshal(login)
}
