package robustness

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"trireme/internal/ops/demo"
)

// TestFenceReleasesNobody: a leader that hears nothing from the others any more fences itself. A client that waits for
// an acknowledgement then gets an error, never an OK (S4): the transaction may be gone.
func TestFenceReleasesNobody(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	s := c.session(leader)
	s.exec("DROP DATABASE IF EXISTS fenced", "CREATE DATABASE fenced", "CREATE TABLE fenced.t (id INT PRIMARY KEY)")
	c.caughtUp()
	for _, f := range c.others(leader) {
		must(t, demo.Halt(f.DaemonPID()))
	}
	answer := make(chan error, 1)
	go func() { answer <- s.try("INSERT INTO fenced.t VALUES (1)") }()
	select {
	case err := <-answer:
		if err == nil {
			t.Error("a commit was answered OK without a majority")
		}
	case <-time.After(healLimit):
		t.Error("a leader without a majority has not cut its client")
	}
	eventually(t, healLimit, "the leader is fenced", func() error {
		if ok, err := c.isPrimary(leader); err != nil || ok {
			return errors.Join(err, errors.New("it takes writes"))
		}
		return nil
	})
	for _, f := range c.others(leader) {
		must(t, c.Signal(f, syscall.SIGCONT))
	}
}
