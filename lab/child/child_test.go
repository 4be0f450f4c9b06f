package child

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

var (
	echo = Role{"test-echo", func(args []string) error {
		_, err := fmt.Print(strings.Join(args, " "))
		return err
	}}
	broken  = Role{"test-broken", func([]string) error { return errors.New("no luck") }}
	unknown = Role{"test-unknown", func([]string) error { return nil }}
)

func TestMain(m *testing.M) {
	Main(echo, broken)
	os.Exit(m.Run())
}

// TestRoles: a process in a role does what the role says, and nothing of the program; one that the program does not
// name is not started.
func TestRoles(t *testing.T) {
	for _, c := range []struct {
		role        Role
		output, err string
	}{
		{echo, "a -b", ""},
		{broken, "test-broken: no luck\n", "exit status 1"},
	} {
		cmd, err := c.role.Command(t.Context(), "a", "-b")
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.CombinedOutput()
		said := ""
		if err != nil {
			said = err.Error()
		}
		if string(out) != c.output || said != c.err {
			t.Errorf("%s: %q, %q; want %q, %q", c.role.Name, out, said, c.output, c.err)
		}
	}
	if _, err := unknown.Command(t.Context()); err == nil || !strings.Contains(err.Error(), unknown.Name) {
		t.Errorf("a role that TestMain does not name: %v", err)
	}
}
