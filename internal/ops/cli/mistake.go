package cli

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// What the parser says of a value that is not there, of a directory that is not, and of a value that is no number.
var (
	noValue  = regexp.MustCompile(`^(\S+): expected \S+ value but got "(.*)" \((<EOL>|.* flag.*)\)`)
	noDir    = regexp.MustCompile(`^(\S+): stat (.*): no such file or directory$`)
	noNumber = regexp.MustCompile(`^(\S+): expected a valid \d+ bit u?int but got (".*")$`)
)

// Mistake words what is wrong with the command line of a program, and says whose help fits best.
func Mistake(program string, err error) (message, help string) {
	message, help = err.Error(), program
	parse, ok := errors.AsType[*kong.ParseError](err)
	if !ok {
		return message, help
	}
	verb := parse.Context.Selected()
	group := parse.Context.Model.Node
	for _, p := range parse.Context.Path { // a group of verbs is not selected
		if p.Command != nil {
			group, help = p.Command, program+" "+p.Command.Path()
		}
	}
	inGroup := group.Parent != nil && len(group.Children) > 0
	if missing, ok := strings.CutPrefix(message, `expected "<`); ok && verb != nil {
		return fmt.Sprintf("<%s is missing: %s %s", strings.TrimSuffix(missing, `"`), program, verb.Summary()), help
	}
	if missing, ok := strings.CutPrefix(message, "missing flags: "); ok && verb != nil {
		is := "is"
		if strings.Contains(missing, ", ") {
			is = "are"
		}
		return fmt.Sprintf("%s %s missing: %s %s", missing, is, program, verb.Summary()), help
	}
	if m := noValue.FindStringSubmatch(message); m != nil && m[3] == "<EOL>" {
		return m[1] + " needs a value", help
	} else if m != nil {
		return fmt.Sprintf("%s needs a value, and %s begins like a flag", m[1], m[2]), help
	}
	if m := noNumber.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("%s: %s is no whole number", m[1], m[2]), help
	}
	if m := noDir.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("%s: there is no directory %s; make it first", m[1], m[2]), help
	}
	switch {
	case !inGroup:
	case strings.HasPrefix(message, "expected one of "):
		message = "expected one of " + childrenOf(group)
	case strings.HasPrefix(message, "unexpected argument ") && !strings.Contains(message, "did you mean"):
		message += "; there are " + childrenOf(group)
	}
	return message, help
}

// childrenOf are the verbs of a group.
func childrenOf(group *kong.Node) string {
	var names []string
	for _, c := range group.Children {
		if !c.Hidden {
			names = append(names, strconv.Quote(c.Name))
		}
	}
	return strings.Join(names, ", ")
}

// Duration reads a time such as 90m, 36h or 30d.
func Duration(text string) (time.Duration, error) {
	if days, found := strings.CutSuffix(text, "d"); found {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time such as 90s, 36h or 30d", text)
	}
	return d, nil
}

// Durations has every flag of that type read so.
var Durations = kong.TypeMapper(reflect.TypeFor[time.Duration](),
	kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("time", &text); err != nil {
			return err
		}
		d, err := Duration(text)
		if err == nil {
			target.SetInt(int64(d))
		}
		return err
	}))
