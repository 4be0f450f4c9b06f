package router

import (
	"testing"

	"trireme/internal/mysql/mysqlwire"
)

// The answer to a prepared CALL with an OUT parameter, as 9.7.4 gives it to a client without CLIENT_DEPRECATE_EOF: the
// parameter's row ends with an EOF that announces nothing, and the OK follows.
func TestAnswerWithOutParameters(t *testing.T) {
	var all []byte
	for i, p := range []string{
		"\x01", "\x03def\x00\x00\x00\x011\x00\f?\x00\x02\x00\x00\x00\b\x81\x00\x00\x00\x00", "\xfe\x00\x00\n\x00",
		"\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00", "\xfe\x00\x00\n\x00", "\x01",
		"\x03def\x01d\x01p\x01p\x01x\x01x\f?\x00\v\x00\x00\x00\x03\x00\x00\x00\x00\x00", "\xfe\x00\x00*\x10",
		"\x00\x00\a\x00\x00\x00", "\xfe\x00\x00\"\x00", "\x00\x00\x00\"\x00\x00\x00",
	} {
		all = mysqlwire.AppendPacket(all, byte(i+1), []byte(p))
	}
	a := newAnswer(comStmtExecute, false)
	for i := range all {
		if a.done() {
			t.Fatalf("it ends after byte %d of %d", i, len(all))
		}
		if used, err := a.feed(all[i : i+1]); err != nil || used != 1 {
			t.Fatalf("byte %d: %d, %v", i, used, err)
		}
	}
	if !a.done() || a.failed || a.status&mysqlwire.StatusAutocommit == 0 {
		t.Errorf("%+v", a)
	}
}
