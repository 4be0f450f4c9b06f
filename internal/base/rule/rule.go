// Package rule names the rule of docs/GUARANTEES.md that an error says is broken, so that the log of a daemon tells it
// by one key (rule=S12) whatever the message is.
package rule

import (
	"errors"
	"fmt"
)

type broken struct{ rule, text string }

func (e *broken) Error() string { return e.rule + ": " + e.text }

// Breaks is the error of a broken rule, such as S12. The node has to fence itself.
func Breaks(rule, format string, args ...any) error {
	return &broken{rule, fmt.Sprintf(format, args...)}
}

// Of an error; empty if it names none.
func Of(err error) string {
	if e, ok := errors.AsType[*broken](err); ok {
		return e.rule
	}
	return ""
}

// Fields are those of a log line about an error. The key rule stands in the log when a rule of docs/GUARANTEES.md was
// found broken, and only then.
func Fields(err error) []any {
	if r := Of(err); r != "" {
		return []any{"err", err, "rule", r}
	}
	return []any{"err", err}
}
