package lifecycle

import (
	"errors"
	"testing"

	"trireme/internal/base/config"
)

// TestTrxLimit: a limit whose turn comes when the node leads no more is not put in force, and one that may be in force
// in spite of an error is taken back.
func TestTrxLimit(t *testing.T) {
	var l trxLimit
	var server config.Bytes // the limit as mysqld has it
	to := func(b config.Bytes, err error) func() error {
		return func() error { server = b; return err }
	}
	lost := errors.New("no answer")
	for _, c := range []struct {
		want   config.Bytes
		still  bool
		answer error
		then   config.Bytes
	}{
		{config.MiB, true, nil, config.MiB}, {0, true, nil, 0}, {config.MiB, false, nil, 0},
		{config.MiB, true, lost, config.MiB}, {0, true, nil, 0}, {0, true, lost, 0},
	} {
		if err := l.put(c.want, func() bool { return c.still }, to(c.want, c.answer)); server != c.then || err != nil &&
			c.answer == nil {
			t.Errorf("%+v: the server has %v (%v)", c, server, err)
		}
	}
}
