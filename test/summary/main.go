// Command summary runs go test -json, prints what a person wants to see of it, and tells at the end of several runs
// where the time went.
//
//	summary FILE COMMAND ARG…   runs COMMAND, keeps its standard output in FILE, prints failed tests as they end and go test's closing lines
//	summary -of FILE…           the tables of these runs: phases, packages, slowest tests, skipped tests, and the failures once more
//	summary -part FILE…         the same of runs that leave tests to a later phase (package needs) which is not among them
//	summary -deferred WHAT FILE…   the tests that these runs left to the phase WHAT, a line each: package and test
//	summary -long DIR           the tests below DIR that needs.Long marks, a line each: folder and test
//
// Status 1: the command failed, or a test did, or one was left to a phase that did not run it.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if err == nil {
		return
	}
	if !errors.Is(err, errFailed) {
		fmt.Fprintln(os.Stderr, "summary:", err)
	}
	os.Exit(1)
}

var errFailed = errors.New("a test failed")

func run(args []string, out io.Writer) error {
	if len(args) < 2 || args[0] == "-deferred" && len(args) < 3 {
		return errors.New(
			"usage: summary FILE COMMAND ARG… | summary -of|-part FILE… | summary -deferred WHAT FILE… | summary -long DIR")
	}
	what, names := args[0], args[1:]
	switch what {
	case "-of", "-part":
	case "-long":
		return long(out, args[1])
	case "-deferred":
		what, names = args[1], args[2:]
	default:
		return follow(args[0], args[1:], out)
	}
	var all []*phase
	for _, name := range names {
		p, err := load(name)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	if args[0] == "-deferred" {
		return deferred(out, all, what)
	}
	return tables(out, all, what == "-part")
}

// deferred lists what was left to a phase.
func deferred(out io.Writer, all []*phase, what string) error {
	for _, p := range all {
		for _, k := range p.packages {
			for _, t := range k.tests {
				if t.deferred == what {
					if _, err := fmt.Fprintln(out, k.path, t.name); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// follow runs the command.
func follow(name string, args []string, out io.Writer) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGINT) // the command gets it too, and what it still says is kept
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	p := newPhase(phaseName(name), out)
	readErr := p.read(io.TeeReader(pipe, file))
	err = cmd.Wait()
	end := event{Action: ended, Elapsed: time.Since(began).Seconds()}
	if s := cmd.ProcessState; s != nil {
		end.CPU = (s.UserTime() + s.SystemTime()).Seconds()
	}
	if err != nil {
		end.Output = err.Error()
	}
	if err := errors.Join(readErr, writeLine(file, end)); err != nil {
		return err
	}
	p.add(end)
	if p.failed() {
		return errFailed
	}
	return nil
}

// load reads what an earlier run has kept.
func load(name string) (*phase, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	p := newPhase(phaseName(name), io.Discard)
	return p, p.read(bufio.NewReader(file))
}

func phaseName(file string) string {
	base := filepath.Base(file)
	return strings.TrimSuffix(base, filepath.Ext(base))
}
