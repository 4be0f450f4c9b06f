package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"

	"trireme/internal/api"
)

// Silent ends a program with a code after everything has been said.
type Silent int

func (s Silent) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Program is one with a command line.
type Program struct {
	Name        string
	Description string
	Commands    any                     // each field with a Run method is one verb
	Env         any                     // what Run methods get
	Options     []kong.Option           // more about the commands, such as titles of their groups
	Declared    func(*kong.Application) // is given the declarations before a verb runs
	Report      func(error) int         // prints an error, and gives the exit code
	Out, ErrOut io.Writer
}

// Run parses a command line, runs its verb and returns the exit code.
func (p Program) Run(args []string) int {
	exited := -1
	options := append([]kong.Option{kong.Name(p.Name), kong.Description(p.Description), kong.Writers(p.Out, p.ErrOut),
		kong.Exit(func(code int) { exited = code }), kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Bind(p.Env), Durations}, p.Options...)
	parser, err := kong.New(p.Commands, options...)
	if err != nil {
		fmt.Fprintf(p.ErrOut, "%s: %v\n", p.Name, err)
		return api.ExitCode(err)
	}
	p.Declared(parser.Model)
	switch {
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "help":
		args = append(args[1:len(args):len(args)], "--help")
	}
	kctx, err := parser.Parse(args)
	if exited >= 0 { // --help
		return exited
	}
	if err != nil {
		message, help := Mistake(p.Name, err)
		return p.Report(api.Errorf(api.KindUsage, "%s", message).With("see `%s --help`", help))
	}
	return p.Report(kctx.Run())
}

// Report prints an error, and gives the exit code. With asJSON a program finds the same on out. kinds are those of
// Failure; ctx ends when the program is interrupted.
func Report(ctx context.Context, program string, out, errOut io.Writer, asJSON bool, err error, kinds []KindOf) int {
	if err == nil {
		return 0
	}
	if silent, ok := errors.AsType[Silent](err); ok {
		return int(silent)
	}
	f := Failure(err, kinds)
	if f.Kind == api.KindFailed && ctx.Err() != nil {
		f.Kind = api.KindInterrupted
	}
	Tell(errOut, program, f)
	if asJSON {
		_ = PrintJSON(out, f) // the exit code says it, too
	}
	return api.ExitCode(f)
}

// PrintJSON prints a document as --json does.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
