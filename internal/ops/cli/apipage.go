package cli

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
)

// WriteAPI writes docs/api.md: the verbs and queries as they are declared, and what everybody may read, with the fields
// of what they take and answer.
func WriteAPI(w io.Writer) {
	all := slices.Clone(views)
	for _, r := range api.Requests() {
		all = append(all, told{Request: r, Params: paramsOf[r.Method+" "+r.Path]})
	}
	slices.SortFunc(all, func(a, b told) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
	})
	fmt.Fprint(w, apiIntro, "| request | role | answered by | what it does |\n|-|-|-|-|\n")
	for _, r := range all {
		fmt.Fprintf(w, "| [`%s %s`](#%s) | %s | %s | %s |\n", r.Method, r.Path, anchor(r), whoAsks(r), whoAnswers(r), r.What)
	}
	for _, r := range all {
		fmt.Fprintf(w, "\n## %s %s\n\n%s\nRole: %s. Answered by %s.\n", r.Method, r.Path, r.What, whoAsks(r), whoAnswers(r))
		if r.Params != nil {
			fmt.Fprint(w, "\n| Parameter | what |\n|-|-|\n")
		}
		for _, p := range r.Params {
			fmt.Fprintf(w, "| `%s` | %s |\n", p[0], p[1])
		}
		if r.Body != nil {
			fields(w, "Takes", r.Body)
		}
		if r.Answer != nil {
			fields(w, "Answers", r.Answer)
		}
	}
}

// apiIntro is what docs/api.md says of all.
const apiIntro = `# The API

This page is written by ` + "`make manual`" + ` from the declarations in ` + "`internal/api/verbs.go`" + ` and
` + "`internal/ops/cli/views.go`" + `.

A request that changes something is a POST with a JSON object and the header
` + "`Content-Type: application/json`" + `, over HTTPS, with ` + "`Authorization: Bearer TOKEN`" + ` ([Tokens and
roles](ops/access.md)). Any node takes it and passes it on to the leader where only the leader can
do it. Fields marked "may be left out" are left out of an answer when they are empty. A duration
whose name ends in ` + "`_ns`" + ` is in nanoseconds. A failure is answered with the fields ` + "`error`" + `,
` + "`kind`" + ` ([kinds](cli.md#error-kinds)) and ` + "`advice`" + `.

A request that only shows something is a GET. Its parameters stand in its address: ` + "`/replica?lag=5s`" + `.
Statements, and what mysqld says of rows, are left out of what everybody may read unless a token is
shown. ` + "`--json`" + ` of a verb prints the same objects.

`

func anchor(r told) string {
	keep := func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c == '-', 'a' <= c && c <= 'z':
			return c
		}
		return -1
	}
	return strings.Map(keep, strings.ToLower(r.Method+" "+r.Path))
}

func whoAsks(r told) string {
	switch {
	case r.Who != "":
		return r.Who
	case r.Role == "":
		return "a join token"
	case r.Open:
		return openUnless
	}
	return string(r.Role)
}

func whoAnswers(r told) string {
	if r.Leader {
		return "the leader"
	}
	return "any node"
}

// fields writes the table of an object's fields, those of the objects in it too.
func fields(w io.Writer, what string, t reflect.Type) {
	if t.Kind() == reflect.Slice {
		what, t = what+" a list of objects with", t.Elem()
	}
	rows := rowsOf("", t, 0)
	if len(rows) == 0 {
		fmt.Fprintf(w, "\n%s: `{}`.\n", what)
		return
	}
	fmt.Fprintf(w, "\n| %s | type |\n|-|-|\n%s\n", what, strings.Join(rows, "\n"))
}

// maxNesting of objects that are told.
const maxNesting = 2

func rowsOf(prefix string, t reflect.Type, depth int) (rows []string) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous || name == "-" || len(f.Index) > 1 && !promoted(t, f) {
			continue
		}
		name = prefix + cmp.Or(name, f.Name)
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		kind := jsonType(f.Type)
		if strings.Contains(options, "omit") {
			kind += ", may be left out"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |", name, kind))
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[time.Time]() && depth < maxNesting {
			rows = append(rows, rowsOf(name+".", inner, depth+1)...)
		}
	}
	return rows
}

// promoted says whether a field of an embedded struct is one of t's own object.
func promoted(t reflect.Type, f reflect.StructField) bool {
	for i := range len(f.Index) - 1 {
		outer := t.FieldByIndex(f.Index[:i+1])
		if name, _, _ := strings.Cut(outer.Tag.Get("json"), ","); !outer.Anonymous || name != "" {
			return false
		}
	}
	return true
}

func jsonType(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time (RFC 3339)"
	case t.Kind() == reflect.Pointer:
		return jsonType(t.Elem()) + " or null"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "base64"
	case t.Kind() == reflect.Slice:
		return "list of " + jsonType(t.Elem())
	case t.Kind() == reflect.Map:
		return "object of " + jsonType(t.Elem())
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Interface:
		return "object"
	case t.Kind() == reflect.String:
		return "string"
	case t.Kind() == reflect.Bool:
		return "bool"
	}
	return "number"
}
