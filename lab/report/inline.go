package report

import (
	"regexp"
	"strings"
)

// span is a stretch of a Text.
type span struct {
	text       string
	code, bold bool
	link       string // where the text leads to, if it does
}

// linkForm is [text](address). The address can hold nothing that runs, and nothing that would need an escape; it may
// have a scheme only if that is http or https.
var linkForm = regexp.MustCompile("^\\[([^\\[\\]`*]+)\\]\\((https?://[\\w./#%?=&~-]+|/?[\\w.#%?=~-][\\w./#%?=~-]*)\\)")

// inline splits a Text at its markup. What is not closed is no markup.
func inline(text string) []span {
	var spans []span
	var plain strings.Builder
	bold := false
	flush := func() {
		if plain.Len() > 0 {
			spans = append(spans, span{text: plain.String(), bold: bold})
			plain.Reset()
		}
	}
	for text != "" {
		if code, rest, ok := cutCode(text); ok {
			flush()
			spans = append(spans, span{text: code, code: true, bold: bold})
			text = rest
			continue
		}
		if m := linkForm.FindStringSubmatch(text); m != nil {
			flush()
			spans = append(spans, span{text: m[1], link: m[2], bold: bold})
			text = text[len(m[0]):]
			continue
		}
		if strings.HasPrefix(text, "**") && (bold || boldCloses(text[2:])) {
			flush()
			bold = !bold
			text = text[2:]
			continue
		}
		plain.WriteByte(text[0])
		text = text[1:]
	}
	flush()
	return spans
}

// cutCode takes a `code` from the front of text.
func cutCode(text string) (code, rest string, ok bool) {
	if !strings.HasPrefix(text, "`") {
		return "", text, false
	}
	code, rest, ok = strings.Cut(text[1:], "`")
	return code, rest, ok && code != ""
}

// boldCloses reports whether text, which follows a "**", starts with something bold: up to another "**" outside of
// code.
func boldCloses(text string) bool {
	if text == "" || text[0] == ' ' || text[0] == '*' {
		return false
	}
	for i := 0; i < len(text); {
		if _, rest, ok := cutCode(text[i:]); ok {
			i = len(text) - len(rest)
			continue
		}
		if strings.HasPrefix(text[i:], "**") {
			return text[i-1] != ' '
		}
		i++
	}
	return false
}

// clean makes text one line of valid UTF-8 without control characters.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0:
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return strings.TrimSpace(text)
}
