// Package script has the commands of our own of the test scripts (package testscript) of both programs.
package script

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"trireme/internal/api"
)

// Exits runs a command and checks its exit code: exits CODE COMMAND ARGS…
func Exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code command args")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if err != nil {
		code = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if code != args[0] {
		ts.Fatalf("exit code %s, not %s", code, args[0])
	}
}

// Fails runs a command with --json, and checks the error and the exit code: fails KIND COMMAND ARGS… Standard error
// must tell people the same. The error is the last document: results of what was done before the failure may come
// first.
func Fails(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: fails kind command args")
	}
	i := slices.IndexFunc(api.Kinds, func(k api.KindInfo) bool { return string(k.Kind) == args[0] })
	if i < 0 {
		ts.Fatalf("there is no kind %q", args[0])
	}
	Exits(ts, false, slices.Concat([]string{strconv.Itoa(api.Kinds[i].Exit)}, args[1:], []string{"--json"}))
	var got api.Error
	for documents := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout"))); ; {
		var next api.Error
		if err := documents.Decode(&next); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			ts.Fatalf("standard output is not JSON alone: %v", err)
		}
		got = next
	}
	if string(got.Kind) != args[0] {
		ts.Fatalf("kind %q, not %q", got.Kind, args[0])
	}
	if text := ts.ReadFile("stderr"); got.Message == "" || !strings.Contains(text, got.Message) ||
		!strings.Contains(text, got.Advice) {
		ts.Fatalf("as text it is %q", text)
	}
}

// Field checks a value of the first JSON document that the last command printed: field PATH VALUE, or ! field PATH if
// it is not to be there. A path is keys joined by slashes. In a list, a key is an index, or the name, node or key of an
// element. Strings are compared as they are, other values as compact JSON.
func Field(ts *testscript.TestScript, neg bool, args []string) {
	if neg && len(args) != 1 || !neg && len(args) != 2 {
		ts.Fatalf("usage: field path value, or ! field path")
	}
	var all any
	ts.Check(json.NewDecoder(strings.NewReader(ts.ReadFile("stdout"))).Decode(&all))
	v, found := lookUp(all, strings.Split(args[0], "/"))
	if neg {
		if found {
			ts.Fatalf("%s is there: %v", args[0], v)
		}
		return
	}
	text, isText := v.(string)
	if !isText {
		b, err := json.Marshal(v)
		ts.Check(err)
		text = string(b)
	}
	if !found || text != args[1] {
		ts.Fatalf("%s: %q (found: %v), not %q", args[0], text, found, args[1])
	}
}

// lookUp follows a path of Field.
func lookUp(v any, path []string) (any, bool) {
	if len(path) == 0 {
		return v, true
	}
	switch v := v.(type) {
	case map[string]any:
		if child, found := v[path[0]]; found {
			return lookUp(child, path[1:])
		}
	case []any:
		for i, element := range v {
			fields, _ := element.(map[string]any)
			if path[0] == strconv.Itoa(i) || slices.ContainsFunc([]string{"name", "node", "key"},
				func(k string) bool { return fields[k] == path[0] }) {
				return lookUp(element, path[1:])
			}
		}
	}
	return nil, false
}
