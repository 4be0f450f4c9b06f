package router

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trireme/internal/mysqlwire"
)

// BenchmarkCost is what a query costs the router alone, in a process of its own: CPU, from its threads' schedstat, and
// context switches. Its sessions take turns with those of other routers in blocks (A B B A), so that ratios hold on a
// loaded machine. N is queries for each router.
//
// TRIREME_ROUTER_COST names the routers: `pass` and `carry` are this program's; `carry@FILE` is that of another test
// binary of this package, and `mysqlrouter@FILE` MySQL's; `,GOMAXPROCS=1` after the file sets its environment. The
// others are compared with the first.
//
//	TRIREME_ROUTER_COST="carry@/tmp/before.test carry" go test -bench Cost -run ^$ -benchtime 20000x ./internal/router
//
// "paced" is 3,000 queries a second of all sessions, "busy" as many as possible.
func BenchmarkCost(b *testing.B) {
	for _, kind := range []string{"small", "large", "sysbench"} {
		play := statements(kind)
		for _, sessions := range []int{16, 64} {
			for _, pace := range []string{"paced", "busy"} {
				b.Run(fmt.Sprintf("%s/%s/%d", kind, pace, sessions), func(b *testing.B) {
					var think time.Duration
					if pace == "paced" {
						think = time.Second / 3000 * time.Duration(sessions)
					}
					compare(b, newPlayer(b, play, think), play, sessions)
				})
			}
		}
	}
}

// costBlocks each router has.
const costBlocks = 8

// compare lets routers to a server take turns.
func compare(b *testing.B, server string, play []statement, sessions int) {
	var routers []*costRouter
	for _, name := range strings.Fields(cmp.Or(os.Getenv("TRIREME_ROUTER_COST"), "pass carry")) {
		routers = append(routers, startCostRouter(b, name, server, sessions))
	}
	if b.N < 100*costBlocks {
		return
	}
	b.ResetTimer()
	for i := range costBlocks {
		for j := range routers {
			if i%2 == 1 {
				j = len(routers) - 1 - j
			}
			routers[j].block(b, play, b.N/costBlocks)
		}
	}
	b.StopTimer()
	b.ReportMetric(0, "ns/op")
	for _, r := range routers {
		var ratios []float64
		for i, v := range r.cpu {
			ratios = append(ratios, v/routers[0].cpu[i])
		}
		b.Logf("%-40s %6.1f µs/query  %.2fx  %5.2f switches/query", r.name, median(r.cpu), median(ratios), median(r.switches))
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// statement is what a client says and is answered.
type statement struct{ request, answer []byte }

// statements are played over and over by each session. "sysbench" is a transaction of its oltp_read_write.
func statements(kind string) (play []statement) {
	say := func(answer []byte, text string) {
		play = append(play, statement{mysqlwire.AppendPacket(nil, 0, append([]byte{comQuery}, text...)), answer})
	}
	ok := func(status uint16) []byte {
		return mysqlwire.AppendPacket(nil, 1,
			mysqlwire.AppendOK(nil, mysqlwire.OK{Status: mysqlwire.StatusAutocommit | status}))
	}
	switch kind {
	case "small":
		say(benchAnswer(1), benchQuery)
	case "large":
		say(benchAnswer(80), benchQuery)
	case "sysbench":
		const trx = mysqlwire.StatusInTransaction
		say(ok(trx), "BEGIN")
		for range 10 {
			say(benchRows(1, trx), "SELECT c FROM sbtest1 WHERE id=5012345")
		}
		for _, what := range []string{"c", "SUM(k)", "c", "DISTINCT c"} {
			rows := 100
			if what == "SUM(k)" {
				rows = 1
			}
			say(benchRows(rows, trx), "SELECT "+what+" FROM sbtest1 WHERE id BETWEEN 5012345 AND 5012444")
		}
		text := strings.Repeat("12345678901-", 10)
		say(ok(trx), "UPDATE sbtest1 SET k=k+1 WHERE id=5012345")
		say(ok(trx), "UPDATE sbtest1 SET c='"+text+"' WHERE id=5012345")
		say(ok(trx), "DELETE FROM sbtest1 WHERE id=5012345")
		say(ok(trx), "INSERT INTO sbtest1 (id, k, c, pad) VALUES (5012345, 10011, '"+text+"', '"+text[:60]+"')")
		say(ok(0), "COMMIT")
	}
	return play
}

// newPlayer is a server that thinks before each answer.
func newPlayer(b *testing.B, play []statement, think time.Duration) (addr string) {
	l := handled(b, func(c net.Conn) {
		if _, err := mysqlwire.Accept(b.Context(), c, mysqlwire.ServerConfig{User: "app", Password: wirePassword,
			Version: "9.7.4"}); err != nil {
			return
		}
		in := make([]byte, 1024)
		for i := 0; ; i++ {
			s := play[i%len(play)]
			if _, err := io.ReadFull(c, in[:len(s.request)]); err != nil {
				return
			}
			if think > 0 {
				time.Sleep(think/2 + rand.N(think))
			}
			if _, err := c.Write(s.answer); err != nil {
				return
			}
		}
	})
	return l.Addr().String()
}

// costRouter is a router's process with sessions through it.
type costRouter struct {
	name          string
	pid           int
	open          []net.Conn
	at            []int // the statement that each says next
	cpu, switches []float64
}

func startCostRouter(b *testing.B, name, server string, sessions int) *costRouter {
	r := &costRouter{name: name, at: make([]int, sessions)}
	program, settings, _ := strings.Cut(name, ",")
	kind, file, _ := strings.Cut(program, "@")
	var addr string
	if kind == "mysqlrouter" {
		addr = r.startMySQLRouter(b, file, server)
	} else {
		if file == "" {
			var err error
			if file, err = os.Executable(); err != nil {
				b.Fatal(err)
			}
		}
		c := exec.Command(file, "-test.run", "^TestCostRouter$")
		c.Env = append(os.Environ(), "TRIREME_ROUTER_COST_SESSIONS="+kind, "TRIREME_ROUTER_COST_SERVER="+server)
		c.Env = append(c.Env, strings.FieldsFunc(settings, func(r rune) bool { return r == ',' })...)
		out, err := c.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		r.start(b, c)
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			b.Fatal(err)
		}
		addr = strings.TrimSpace(line)
	}
	login := mysqlwire.ClientConfig{User: "app", Password: wirePassword,
		Attributes: []mysqlwire.Attribute{{Name: "_client_name", Value: "pymysql"}}}
	for range sessions {
		var c net.Conn
		eventually(b, "a connection", func() (ok bool) {
			var err error
			c, err = net.Dial("tcp", addr)
			return err == nil
		})
		b.Cleanup(func() { _ = c.Close() })
		if _, err := mysqlwire.Login(b.Context(), c, login); err != nil {
			b.Fatal(name, err)
		}
		r.open = append(r.open, c)
	}
	return r
}

// start runs a process that ends with its standard input, or else is killed.
func (r *costRouter) start(b *testing.B, c *exec.Cmd) {
	in, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	r.pid = c.Process.Pid
	b.Cleanup(func() {
		_ = in.Close()
		if !strings.Contains(c.Path, ".test") {
			_ = c.Process.Kill()
		}
		_ = c.Wait()
	})
}

// startMySQLRouter passes TLS on and everything else, as the suite `access` has it.
func (r *costRouter) startMySQLRouter(b *testing.B, program, server string) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr = l.Addr().String()
	_ = l.Close()
	dir := b.TempDir()
	_, port, _ := net.SplitHostPort(addr)
	plugins := filepath.Join(filepath.Dir(program), "../root/usr/lib/mysqlrouter/plugin") // of scripts/mysql-router.sh
	if _, err := os.Stat(plugins); err != nil {
		plugins = "/usr/lib/mysqlrouter/plugin"
	}
	conf := "[DEFAULT]\nlogging_folder=" + dir + "\nruntime_folder=" + dir + "\ndata_folder=" + dir + "\nplugin_folder=" +
		plugins + "\n[logger]\nlevel=WARNING\n" +
		"[routing:cost]\nbind_address=127.0.0.1\nbind_port=" + port + "\ndestinations=" + server +
		"\nrouting_strategy=first-available\nprotocol=classic\n" +
		"client_ssl_mode=PASSTHROUGH\nserver_ssl_mode=AS_CLIENT\n"
	file := filepath.Join(dir, "mysqlrouter.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		b.Fatal(err)
	}
	args := []string{"-c", file}
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	r.start(b, exec.Command(program, args...))
	return addr
}

// block plays queries over all sessions.
func (r *costRouter) block(b *testing.B, play []statement, queries int) {
	cpu, switches := r.spent(b)
	var wg sync.WaitGroup
	for i, c := range r.open {
		wg.Go(func() {
			in := make([]byte, 16<<10)
			for range queries / len(r.open) {
				s := play[r.at[i]%len(play)]
				r.at[i]++
				if _, err := c.Write(s.request); err != nil {
					b.Error(err)
					return
				}
				if _, err := io.ReadFull(c, in[:len(s.answer)]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	done := float64(queries / len(r.open) * len(r.open))
	cpuAfter, switchesAfter := r.spent(b)
	r.cpu = append(r.cpu, (cpuAfter-cpu)/1e3/done)
	r.switches = append(r.switches, (switchesAfter-switches)/done)
}

// spent is CPU, in ns, and context switches of all threads so far.
func (r *costRouter) spent(b *testing.B) (cpu, switches float64) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", r.pid))
	if err != nil || len(tasks) == 0 {
		b.Fatalf("%s: no process %d", r.name, r.pid)
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(task + "/schedstat")
		if err != nil {
			b.Fatal(err)
		}
		ns, _ := strconv.ParseFloat(strings.Fields(string(stat))[0], 64)
		cpu += ns
		status, err := os.ReadFile(task + "/status")
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			if name, value, _ := strings.Cut(line, ":"); strings.HasSuffix(name, "ctxt_switches") {
				n, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
				switches += n
			}
		}
	}
	return cpu, switches
}

// TestCostRouter is the router's process of BenchmarkCost.
func TestCostRouter(t *testing.T) {
	server := os.Getenv("TRIREME_ROUTER_COST_SERVER")
	if server == "" {
		t.Skip("a process of BenchmarkCost")
	}
	r := start(t, Config{Sessions: os.Getenv("TRIREME_ROUTER_COST_SESSIONS") == "carry"})
	r.SetView(View{RW: &Target{Name: "n1", Addr: server, Epoch: "1"}})
	fmt.Println(r.RWAddr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}
