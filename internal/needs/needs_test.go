package needs

import (
	"errors"
	"fmt"
	"testing"
)

// ended remembers how a test would have ended.
type ended struct {
	testing.TB
	how string
}

func (e *ended) Helper()      {}
func (e *ended) Skip(...any)  { e.how = "skipped" }
func (e *ended) Fatal(...any) { e.how = "failed" }

func TestHave(t *testing.T) {
	const required = "TRIREME_REQUIRE_NOTHING"
	lack := errors.New("none here")
	for _, c := range []struct {
		err     error
		require string
		how     string
	}{
		{nil, "", ""},
		{nil, "1", ""},
		{fmt.Errorf("no root: %w", lack), "", "skipped"},
		{fmt.Errorf("no root: %w", lack), "1", "failed"},
		{errors.New("something else"), "", "failed"},
		{errors.New("something else"), "1", "failed"},
	} {
		t.Setenv(required, c.require)
		e := &ended{TB: t}
		if have(e, c.err, lack, required); e.how != c.how {
			t.Errorf("%v with %s=%q: %q, want %q", c.err, required, c.require, e.how, c.how)
		}
	}
}

func TestLong(t *testing.T) {
	for _, c := range []struct{ long, soak, how string }{
		{"", "", "skipped"},
		{"1", "", ""},
		{"", "1", ""},
	} {
		t.Setenv("TRIREME_LONG", c.long)
		t.Setenv("TRIREME_SOAK", c.soak)
		e := &ended{TB: t}
		if Long(e); e.how != c.how {
			t.Errorf("with TRIREME_LONG=%q and TRIREME_SOAK=%q: %q, want %q", c.long, c.soak, e.how, c.how)
		}
	}
}
