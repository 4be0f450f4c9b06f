// Package child starts this program again as a process that does something else: that has a role. A program names the
// roles that its processes can have, at the beginning of main or TestMain:
//
//	child.Main(wan.Forwarder, faultfs.Server)
//
// A process whose role the program does not name is not started: it would be the program itself once more, and would
// start the next one.
package child

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Role is what a process does instead of being the program that it was started from.
type Role struct {
	Name string // argv[0] of the process
	Run  func(args []string) error
}

var known = map[string]bool{} // written by Main only

// Main carries out the role that this process was started in, if it has one of these, and ends the process. Else it
// returns, and processes can be started in these roles from now on. It is called before all else.
func Main(roles ...Role) {
	for _, r := range roles {
		if os.Args[0] == r.Name {
			os.Exit(r.exitCode(os.Args[1:]))
		}
		known[r.Name] = true
	}
}

func (r Role) exitCode(args []string) int {
	if err := r.Run(args); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", r.Name, err)
		return 1
	}
	return 0
}

// Command is this program in a role, to be started by the caller. It ends with ctx.
func (r Role) Command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	if !known[r.Name] {
		return nil, fmt.Errorf("this program cannot start %s: its main or TestMain has to name the role (child.Main)", r.Name)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = append([]string{r.Name}, args...)
	return cmd, nil
}
