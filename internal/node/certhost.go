package node

import (
	"context"
	"fmt"

	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/certs"
)

// certHost is what certs sees of this node.
type certHost struct{ host }

// certMySQL is a mysqld to it.
type certMySQL struct {
	*mysqld.Admin
	*mysqld.Server
}

func (h certHost) Change(ctx context.Context, term uint64, change func(*config.Cluster) error) error {
	_, err := h.n.members.Change(ctx, term, change)
	return err
}

func (h certHost) Raft() (st consensus.Status) {
	if h.n.isUp() {
		st = h.n.cons.Status()
	}
	return st
}

func (h certHost) CheckLinks() { h.n.tr.Recheck() }

func (h certHost) MySQL() (certs.MySQL, mysqld.Config) {
	l := h.n.lives.Life()
	if l == nil {
		return nil, h.n.mysqldConfig()
	}
	return certMySQL{l.Admin(), l.Process()}, h.n.mysqldConfig()
}

func (h certHost) Leads() (certs.MySQL, uint64) {
	s := h.n.lives.Status()
	l := s.Life()
	if l == nil || !s.Opens(l) || h.n.leadership.Asked() {
		return nil, 0
	}
	return certMySQL{l.Admin(), l.Process()}, s.Term()
}

func (h certHost) RecordAt(kind string, index uint64, text string) {
	h.n.history.Add(h.n.history.Event(kind, index, text))
}

func (h certHost) ShutOut(why string) {
	n := h.n
	n.fail(
		fmt.Errorf("%w: node %q (id %d) is shut out of cluster %q by the members that it reaches: %s. Its data is left in %s; to make it a member again, "+
			"remove it if it is one, move that directory and the settings file away and run `trireme join`", ErrFinal, n.id.Name, n.id.ID,
			n.id.Cluster, why, n.cfg.Dir))
}
