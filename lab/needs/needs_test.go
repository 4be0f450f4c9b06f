package needs

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

// ended remembers how a test would have ended.
type ended struct {
	testing.TB
	how string
}

func (e *ended) Helper()      {}
func (e *ended) Skip(...any)  { e.end("skipped") }
func (e *ended) Fatal(...any) { e.end("failed") }

// end keeps the first end: testing.T would not have come to another.
func (e *ended) end(how string) {
	if e.how == "" {
		e.how = how
	}
}

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

func TestLater(t *testing.T) {
	for _, c := range []struct{ deferred, how string }{
		{"", ""},
		{"servers", ""},
		{"quiet", "skipped"},
		{"servers,quiet", "skipped"},
	} {
		t.Setenv("TRIREME_DEFER", c.deferred)
		e := &ended{TB: t}
		if Quiet(e); e.how != c.how {
			t.Errorf("with TRIREME_DEFER=%q: %q, want %q", c.deferred, e.how, c.how)
		}
	}
}

func TestCannot(t *testing.T) {
	required := "skipped" // of others than root
	if os.Geteuid() == 0 {
		required = "failed"
	}
	for _, c := range []struct{ require, soak, how string }{
		{"", "", "skipped"},
		{"1", "", required},
		{"", "1", "failed"},
	} {
		t.Setenv("TRIREME_REQUIRE_MYSQL", c.require)
		t.Setenv("TRIREME_SOAK", c.soak)
		e := &ended{TB: t}
		if Cannot(e, "no such tool"); e.how != c.how {
			t.Errorf("with TRIREME_REQUIRE_MYSQL=%q and TRIREME_SOAK=%q: %q, want %q", c.require, c.soak, e.how, c.how)
		}
	}
	e := &ended{TB: t}
	if path := Program(e, "sh"); path == "" || e.how != "" {
		t.Errorf("sh: %q, %q", path, e.how)
	}
	if Program(e, "trireme-has-no-such-program"); e.how != "failed" {
		t.Errorf("a program that is not there: %q", e.how)
	}
}
