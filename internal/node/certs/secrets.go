package certs

import (
	"context"
	"errors"
	"fmt"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/core/transport"
	"trireme/internal/mysql/mysqld"
)

// ReqClone is a request between daemons, answered with the present login of trireme_clone
// (config.Account), as far as the node has it. Only members can ask.
var ReqClone = transport.Kind[transport.None, config.Account]{Number: 57}

// LoadSecrets reads this node's secrets.
func (cs *Certs) LoadSecrets() error {
	s, err := config.LoadSecrets(cs.cfg.Dir)
	if err == nil {
		cs.secrets.Store(&s)
	}
	return err
}

// Secrets are this node's as they are now. It never waits for the disk.
func (cs *Certs) Secrets() (s config.Secrets) {
	if now := cs.secrets.Load(); now != nil {
		s = *now
	}
	return s
}

// keepSecrets changes them, on disk first.
func (cs *Certs) keepSecrets(change func(*config.Secrets)) error {
	cs.saving.Lock()
	defer cs.saving.Unlock()
	next := cs.Secrets()
	change(&next)
	err := next.Save(cs.cfg.Dir)
	if err == nil {
		cs.secrets.Store(&next)
	}
	return err
}

// Newcomer are the secrets that a new node gets: those that nodes share, and logins of its own.
func (cs *Certs) Newcomer() config.Secrets {
	s := cs.Secrets()
	s.RenewLogins()
	return s
}

// RenewLogins gives Trireme's accounts that log in to a mysqld from its own host other passwords, which no other node
// knows. The next start of mysqld sets them; the file has them for commands on this host.
func (cs *Certs) RenewLogins() {
	if err := cs.keepSecrets((*config.Secrets).RenewLogins); err != nil {
		cs.log.Warn("the passwords of trireme_admin and trireme_repl stay as they were", "err", err)
	}
}

// knowsClone says whether a password is the one that settings tell of.
func knowsClone(c *config.Cluster, a config.Account) bool {
	return c.CloneHash == "" || pki.TokenMatches(a.Password, c.CloneHash)
}

// RenewClone keeps the password of trireme_clone from former members. Every account of Trireme's but that one logs in
// from its own host alone. The leader replaces it in mysqld, where the log brings it to all servers, and then commits
// its hash; members ask each other for what fits the hash. Whatever dies in between, the next leader begins again: by
// the mark in the settings, or because no member has what fits.
func (cs *Certs) RenewClone(ctx context.Context) {
	c := cs.host.Settings()
	err := cs.fetchClone(ctx, c)
	if c.Rotate || err != nil {
		if my, term := cs.host.Leads(); my != nil {
			err = cs.replaceClone(ctx, term, my)
		}
	}
	if ctx.Err() == nil && cs.cloneProblem.isNew(err) {
		cs.log.Warn("the password of trireme_clone is not the new one here yet", "err", err)
	}
}

// ReplacePassword has trireme_clone get another password, as it does by itself when a node is shut out.
func (cs *Certs) ReplacePassword(ctx context.Context, _ api.ReplaceRequest) (res api.ReplaceResult, err error) {
	err = cs.host.Change(ctx, 0, func(c *config.Cluster) error {
		if c.Rotate {
			return api.Errorf(api.KindAlready, "trireme_clone is being given another password now")
		}
		c.Rotate = true
		return nil
	})
	return api.ReplaceResult{Message: "trireme_clone gets another password, which takes about a second",
		Advice: "`trireme cert ca` says which members do not have it yet"}, err
}

// replaceClone gives trireme_clone another password, as the leader of a term.
func (cs *Certs) replaceClone(ctx context.Context, term uint64, my MySQL) error {
	login := config.Account{User: cs.Secrets().Clone.User, Password: config.NewToken()}
	if err := my.SetPassword(ctx, mysqld.Account(login)); err != nil { // it returns when that is committed
		return err
	}
	at := cs.host.Raft().Commit
	if err := cs.keepClone(login); err != nil {
		return err
	}
	err := cs.host.Change(ctx, term, func(c *config.Cluster) error {
		c.CloneHash, c.CloneAt, c.Rotate = pki.HashToken(login.Password), at, false
		return nil
	})
	if err == nil {
		cs.log.Info("trireme_clone has a new password", "index", at)
		cs.host.RecordAt("secrets", at, "trireme_clone, by which nodes copy data, has a new password")
	}
	return err
}

// fetchClone asks the other members for the login that settings tell of, unless this node has it.
func (cs *Certs) fetchClone(ctx context.Context, c *config.Cluster) error {
	if knowsClone(c, cs.Secrets().Clone) {
		return nil
	}
	login, err := askMembers(ctx, cs, ReqClone, transport.None{}, func(login config.Account) error {
		if login.User == "" || !knowsClone(c, login) {
			return errors.New("it sent another password than the settings tell of")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("no member gives it: %w", err)
	}
	return cs.keepClone(login)
}

// keepClone replaces the login here, durably.
func (cs *Certs) keepClone(login config.Account) error {
	err := cs.keepSecrets(func(s *config.Secrets) { s.Clone = login })
	if err == nil {
		cs.log.Info("this node has a new password of trireme_clone")
	}
	return err
}

// CloneFor answers another node that is to stay a member.
func (cs *Certs) CloneFor(_ context.Context, from uint64, _ transport.None) (login config.Account, err error) {
	c := cs.host.Settings()
	if m, ok := c.MemberByID(from); !ok || m.Removing || c.WhyRevoked(from, "") != "" {
		return login, fmt.Errorf("node %d is not a member, or not for long", from)
	}
	login = cs.Secrets().Clone
	if !knowsClone(c, login) {
		return config.Account{}, errors.New("it does not have it either")
	}
	return login, nil
}

// askMembers asks the other members, one after the other, until one gives an answer that passes check.
func askMembers[Q, A any](ctx context.Context, cs *Certs, kind transport.Kind[Q, A], q Q,
	check func(A) error) (answer A, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var errs []error
	for _, m := range cs.host.Settings().Members {
		if m.ID == cs.id.ID {
			continue
		}
		answer, err := kind.Ask(ctx, cs.host, m.ID, q)
		if err == nil {
			err = check(answer)
		}
		if err == nil {
			return answer, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", m.Name, err))
	}
	if len(errs) == 0 {
		return answer, errors.New("there is no other")
	}
	return answer, errors.Join(errs...)
}
