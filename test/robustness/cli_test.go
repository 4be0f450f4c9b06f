package robustness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/api"
	"trireme/internal/ops/demo"
	"trireme/lab/testkit"
)

// inJSON runs the command line against a node, with --json, and returns its exit code and what it printed on standard
// output.
func (c *cluster) inJSON(n *demo.Node, args string) (code int, out []byte) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, testkit.Program(c.t, testkit.Trireme), append(strings.Fields(args), "--json", "--api",
		fmt.Sprintf("127.0.0.1:%d", n.Ports.API), "--token-file", filepath.Join(scratch, "credentials", c.State().
			Cluster))...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // it tells where it hangs
	cmd.WaitDelay = 5 * time.Second
	return runCommand(c.t, cmd)
}

// runCommand runs one, and logs what it tells people.
func runCommand(t *testing.T, cmd *exec.Cmd) (code int, out []byte) {
	t.Helper()
	var text bytes.Buffer
	cmd.Stderr = &text
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("trireme %s: %v: %s", strings.Join(cmd.Args[1:], " "), err, text.Bytes())
	}
	if text.Len() > 0 {
		t.Logf("trireme %s: %s", cmd.Args[1], text.Bytes())
	}
	return cmd.ProcessState.ExitCode(), out
}

// result is what a command prints with --json; it must end with a code.
func result[T any](c *cluster, n *demo.Node, code int, args string) (res T) {
	c.t.Helper()
	got, out := c.inJSON(n, args)
	if got != code {
		c.t.Fatalf("trireme %s: exit code %d, want %d: %s", args, got, code, out)
	}
	if err := json.Unmarshal(out, &res); err != nil {
		c.t.Fatalf("trireme %s: %v: %s", args, err, out)
	}
	return res
}

// refused runs a command that must fail in one way, and name what an operator needs.
func (c *cluster) refused(n *demo.Node, kind api.Kind, args string, names ...string) {
	c.t.Helper()
	if err := c.refusal(n, kind, args, names...); err != nil {
		c.t.Fatal(err)
	}
}

// refusal is nil if a command fails in that way.
func (c *cluster) refusal(n *demo.Node, kind api.Kind, args string, names ...string) error {
	c.t.Helper()
	code, out := c.inJSON(n, args)
	return failedAs(code, out, kind, args, names...)
}

// failedAs is nil if a command that was run with --json has failed in one way, and named what an operator needs.
func failedAs(code int, out []byte, kind api.Kind, args string, names ...string) error {
	var e api.Error
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); { // the failure is the last document
		e = api.Error{}
		if err := d.Decode(&e); err != nil {
			return fmt.Errorf("trireme %s: exit code %d, %w: %s", args, code, err, out)
		}
	}
	if e.Kind != kind || code != api.ExitCode(&e) || e.Message == "" {
		return fmt.Errorf("trireme %s: exit code %d, want kind %q: %s", args, code, kind, out)
	}
	for _, name := range names {
		if !strings.Contains(e.Error(), name) && !bytes.Contains(out, []byte(name)) {
			return fmt.Errorf("trireme %s does not name %q: %s", args, name, out)
		}
	}
	return nil
}

// refusesWrites says whether a server, or the router for want of one, has refused to write.
func refusesWrites(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == 1290
}

// reasons are the codes of why-not.
func (c *cluster) reasons(n *demo.Node, of string) (codes []string) {
	c.t.Helper()
	for _, r := range result[api.WhyNotView](c, n, 0, "why-not "+of).Reasons {
		codes = append(codes, string(r.Code))
	}
	return codes
}

// refusedDry is nil if a dry run, printed with --json, says that it would not work, in one way.
func refusedDry(out []byte, kind api.Kind) error {
	var res struct {
		ProblemKind api.Kind `json:"problem_kind"`
	}
	if err := json.Unmarshal(out, &res); err != nil || res.ProblemKind != kind {
		return fmt.Errorf("want kind %q: %v, %s", kind, err, out)
	}
	return nil
}

// rolledBack says whether a switchover tells of a transaction with so many changed rows and this last statement.
func rolledBack(res api.SwitchoverResult, rows uint64, statement string) bool {
	return slices.ContainsFunc(res.OpenTransactions,
		func(x api.OpenTransaction) bool { return x.Rows == rows && x.Statement == statement })
}
