package config

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Render gives the TOML file of a node: every setting with its explanation; those that have their default are commented
// out, so that a later version's better default takes effect. Parse of it gives n back.
func Render(n Node) []byte {
	var b bytes.Buffer
	b.WriteString("# Settings of this node. docs/configuration.md explains each (of a package: in /usr/share/doc/trireme/docs);\n# `trireme config check` finds mistakes.\n")
	b.WriteString("# A line that is commented out shows the default.\n\n")
	section := ""
	for _, s := range settings {
		table, name, nested := strings.Cut(s.key, ".")
		if !nested {
			table, name = "", s.key
		}
		if table != section {
			fmt.Fprintf(&b, "\n[%s]\n", table)
			section = table
		}
		value := s.dest(&n)
		if options, isMap := value.(*map[string]string); isMap {
			renderOptions(&b, s, *options)
			continue
		}
		text, comment := literal(value), ""
		if isDefault(s, value) {
			comment = "# "
		}
		fmt.Fprintf(&b, "%-44s # %s\n", comment+name+" = "+text, s.doc)
	}
	return b.Bytes()
}

// example is a line of a table that is empty.
var example = map[string]string{"mysql.options": `innodb_buffer_pool_size = "4G"`,
	"router.levels": `reports = "BEFORE"`}

// renderOptions writes the table; it must be the last of its section, as everything after it belongs to it.
func renderOptions(b *bytes.Buffer, s setting, options map[string]string) {
	if len(options) == 0 {
		fmt.Fprintf(b, "\n# [%s] # %s\n# %s\n", s.key, s.doc, example[s.key])
		return
	}
	fmt.Fprintf(b, "\n[%s] # %s\n", s.key, s.doc)
	for _, k := range sortedKeys(options) {
		fmt.Fprintf(b, "%s = %s\n", quote(k), quote(options[k]))
	}
}

func isDefault(s setting, value any) bool {
	d := Default()
	return literal(s.dest(&d)) == literal(value)
}

// literal is the TOML form of a setting's value.
func literal(value any) string {
	switch v := value.(type) {
	case *string:
		return quote(*v)
	case *[]string:
		var quoted []string
		for _, s := range *v {
			quoted = append(quoted, quote(s))
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case *int:
		return strconv.Itoa(*v)
	case *Bytes:
		return quote(v.String())
	case *Duration:
		return quote(v.String())
	default:
		panic(fmt.Sprintf("config: setting of type %T", value))
	}
}

// quote makes a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, "\\u%04X", r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
