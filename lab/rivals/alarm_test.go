package rivals

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func addTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestAlarms: a daemon that ends by itself, a broken rule in its log and a failed assertion of mysqld are told once
// each, with the line; what was our own doing is not, and a line that is not complete waits.
func TestAlarms(t *testing.T) {
	w, dir := newWatch(), t.TempDir()
	n := nodeLogs{node: "n1", daemon: filepath.Join(dir, "n1.log"), mysqld: filepath.Join(dir, "mysqld.err")}
	expect := func(want ...string) {
		t.Helper()
		got := w.alarms([]nodeLogs{n})
		if len(got) != len(want) {
			t.Fatalf("%q, want %q", got, want)
		}
		for i := range want {
			if !strings.Contains(got[i].String(), want[i]) || got[i].Host != "n1" {
				t.Errorf("%q, want %q", got[i], want[i])
			}
		}
	}
	expect() // there are no logs yet
	addTo(t, n.daemon,
		"level=INFO msg=\"log opened\"\nlevel=ERROR msg=\"this node stops permanently\" err=\"S12: entry 3 starts at 1:99, the one before it ended at 1:98\" ru")
	addTo(t, n.mysqld, "[System] ready for connections\n")
	expect()
	addTo(t, n.daemon, "le=S12\n")
	expect("entry 3 starts at 1:99")
	addTo(t, n.daemon, "level=ERROR msg=\"this node stops permanently\" err=\"disk: input/output error\"\n")
	expect()
	addTo(t, n.daemon, "panic: runtime error\nfatal error: all goroutines are asleep\n")
	addTo(t, n.mysqld, "InnoDB: Assertion failure: buf0dblwr.cc:3\n")
	expect("panic: runtime error", "fatal error", "buf0dblwr.cc:3")

	// A power loss takes the end of a log that was told already.
	addTo(t, n.mysqld,
		"2026-11-26T17:48:39.226631Z 28 [InnoDB] Assertion failure: os0file.cc:2853\n[System] ready for connections\n")
	if got := w.alarms([]nodeLogs{n}); len(got) != 1 || got[0].At.UTC().Format(time.RFC3339) != "2026-11-26T17:48:39Z" {
		t.Errorf("%v, which a look came late to", got)
	}
	info, err := os.Stat(n.mysqld)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(n.mysqld, info.Size()-40); err != nil {
		t.Fatal(err)
	}
	addTo(t, n.mysqld, "\x00\x00\n")
	expect()
	addTo(t, n.mysqld, "2026-11-26T17:49:01.000001Z 28 [InnoDB] Assertion failure: os0file.cc:2853\n")
	expect("17:49:01.000001Z")

	// It takes the beginning of a line, too.
	const failed = "Y-013183] [InnoDB] Assertion failure: os0file.cc:2853:ib::fatal triggered thread 140105269561024\n"
	addTo(t, n.mysqld, "2026-11-26T17:50:01.000001Z 28 [ERROR] [M"+failed)
	expect("140105269561024")
	addTo(t, n.mysqld, strings.Repeat("\x00", 41)+failed)
	expect()
	addTo(t, n.mysqld, strings.Repeat("\x00", 41)+strings.Replace(failed, "561024", "561025", 1))
	expect("561025")

	killedErr := exec.Command("sh", "-c", "kill -9 $$").Run()
	failedErr := exec.Command("sh", "-c", "exit 1").Run()
	w.strike("n1")
	w.exit("n1", killedErr)
	w.strike("n1")
	w.exit("n1", nil) // SIGTERM
	expect()
	w.exit("n1", killedErr) // somebody else's signal
	expect("signal: killed")
	w.strike("n1")
	w.exit("n1", failedErr) // before the signal
	w.exit("n1", nil)
	expect("exit status 1", "exit status 0")

	addTo(t, n.mysqld, "18:01:01 Assertion failure: last words\n")
	w.forget(n)
	if err := os.WriteFile(n.mysqld,
		[]byte("18:01:02 Assertion failure: a longer line of the next member on this host, whose log is another one\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	expect("last words", "a longer line")
}
