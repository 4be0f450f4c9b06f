package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"trireme/internal/api"
)

// KindOf is the kind of an error of what a command line does by itself.
type KindOf = struct {
	Err  error
	Kind api.Kind
}

// common are those of any program, after its own.
var common = []KindOf{
	{fs.ErrPermission, api.KindForbidden},
	{fs.ErrNotExist, api.KindNotFound},
	{context.Canceled, api.KindInterrupted}, // last: one failure cancels what else is under way
}

// Failure is an error as --json prints it: what an API would have answered.
func Failure(err error, kinds []KindOf) *api.Error {
	if a, ok := errors.AsType[*api.Error](err); ok {
		if a.Error() == err.Error() {
			return a
		}
		return &api.Error{Kind: a.Kind, Message: err.Error()}
	}
	f := &api.Error{Kind: api.KindFailed, Message: err.Error()}
	if errors.Is(err, fs.ErrPermission) {
		f.Advice = "if these are the files of a node, run this as root (sudo)"
	}
	all := slices.Concat(kinds, common)
	if i := slices.IndexFunc(all, func(k KindOf) bool { return errors.Is(err, k.Err) }); i >= 0 {
		f.Kind = all[i].Kind
	}
	return f
}

// Tell prints a failure, with advice on a line of its own.
func Tell(errOut io.Writer, program string, f *api.Error) {
	fmt.Fprintf(errOut, "%s: %s\n", program, f.Message)
	if f.Advice != "" {
		fmt.Fprintln(errOut, "        ", f.Advice)
	}
}

// AsksJSON reports whether a command line has --json. It must be known before the rest is: what is wrong with the rest
// is said in JSON, too.
func AsksJSON(args []string) bool {
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}
