package recorder

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"trireme/internal/api"
	"trireme/internal/control/dashboard"
)

// TestProcesses: the CPU time of daemon and mysqld is counted once, whatever becomes of mysqld, and of their memory a
// bucket has the highest.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	// runs writes what /proc has of a process (proc(5)): 14 and 15 are its ticks, of which there are 100 in a second,
	// and 24 is its memory, in pages.
	runs := func(pid, user, system, pages int) {
		t.Helper()
		path := filepath.Join(dir, fmt.Sprint(pid))
		text := fmt.Sprintf("%d (my (sql) d) S 1 2 3 0 -1 4 5 6 7 8 %d %d 90 90 20 0 9 0 100 1000000 %d 18446744073709551615 "+
			"1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n", pid, user, system, pages)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "stat"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := openStore(t, t.TempDir(), 64<<20)
	r := New(s)
	fs, err := procfs.NewFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	r.proc = fs
	at, page := began, uint64(os.Getpagesize())
	write := func(mysqld int) {
		t.Helper()
		at = at.Add(10 * time.Second)
		in := Reading{At: at, Took: 10 * time.Second}
		if mysqld >= 0 {
			in.Self.MySQL = &api.MySQLView{PID: mysqld}
		}
		if err := r.Write(in); err != nil {
			t.Fatal(err)
		}
	}
	runs(os.Getpid(), 100, 50, 3000)
	runs(71, 400, 100, 90_000)
	write(71)
	runs(os.Getpid(), 200, 50, 2000)
	runs(71, 500, 100, 80_000)
	write(71)
	write(0)  // it has none, or none any more
	write(72) // it is gone already
	runs(72, 650, 50, 10_000)
	write(72) // a new one, which began at 0
	if err := os.RemoveAll(filepath.Join(dir, fmt.Sprint(os.Getpid()))); err != nil {
		t.Fatal(err)
	}
	write(-1) // a logger
	list := period(t, s, began, began.Add(time.Minute)).Buckets
	for i, want := range []map[string]uint64{
		{daemonCPU: 1500, daemonMemory: 3000 * page, mysqldCPU: 5000, mysqldMemory: 90_000 * page},
		{daemonCPU: 1000, daemonMemory: 2000 * page, mysqldCPU: 1000, mysqldMemory: 80_000 * page},
		{daemonCPU: 0, daemonMemory: 2000 * page},
		{daemonCPU: 0, daemonMemory: 2000 * page},
		{daemonCPU: 0, daemonMemory: 2000 * page, mysqldCPU: 7000, mysqldMemory: 10_000 * page},
		{},
	} {
		if got := list[i].MySQL; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
	all := period(t, s, began, began.Add(40*time.Hour)).Buckets
	want := map[string]uint64{daemonCPU: 2500, daemonMemory: 3000 * page, mysqldCPU: 13_000, mysqldMemory: 90_000 * page}
	if len(all) != 1 || fmt.Sprint(all[0].MySQL) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", all[0].MySQL, want)
	}
	drawn(t, period(t, s, began, began.Add(time.Minute)))
}

// drawn: the page knows the names of what processes took, and does not take them for counters of mysqld.
func drawn(t *testing.T, v api.PeriodView) {
	t.Helper()
	var page strings.Builder
	if err := dashboard.WriteReport(&page, api.Report{From: v.From, To: v.To, Nodes: []api.PeriodView{v}}, nil); err != nil {
		t.Fatal(err)
	}
	part := func(id string) string {
		_, after, _ := strings.Cut(page.String(), `aria-labelledby="`+id+`-h"`)
		text, _, _ := strings.Cut(after, "</section>")
		return text
	}
	for _, id := range []string{"mysqld-cpu", "mysqld-memory", "daemon-cpu", "daemon-memory"} {
		if text := part(id); !strings.Contains(text, ">n1</th>") {
			t.Errorf("%s is not drawn: %s", id, text)
		}
	}
	if text := part("counters"); text == "" || strings.Contains(text, "daemon_") || strings.Contains(text, "mysqld_") {
		t.Errorf("what processes took is among mysqld's counters: %s", text)
	}
}

// TestOwnProcess reads the real /proc.
func TestOwnProcess(t *testing.T) {
	s := openStore(t, t.TempDir(), 64<<20)
	if err := New(s).Write(Reading{At: began, Took: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	sum := period(t, s, began.Add(-time.Minute), began).Buckets[0].MySQL
	if sum[daemonMemory] < 1<<20 {
		t.Errorf("this program has %d bytes of memory", sum[daemonMemory])
	}
	if _, known := sum[daemonCPU]; !known {
		t.Error("the CPU time of this program is not known")
	}
}
