package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"trireme/internal/api"
)

// Manual is what the manual of a program says besides its declarations.
type Manual struct {
	Intro       string         // what the page in Markdown begins with
	ExitCodes   [][2]string    // and what each means
	Kinds       []api.KindInfo // of errors
	Environment [][2]string    // variables
	Common      []string       // flags that many verbs have, all of them: the page in Markdown tells them once
}

// Write writes the man pages into a directory, or the page of all verbs as Markdown to out.
func (m Manual) Write(out io.Writer, app *kong.Application, dir string, markdown bool) error {
	if markdown {
		return m.Markdown(out, app)
	}
	if dir == "" {
		return api.Errorf(api.KindUsage, "where do the pages go? Give a directory")
	}
	return m.Pages(dir, app)
}

// Pages writes the man pages, one for each verb, from the same declarations that --help is printed from.
func (m Manual) Pages(dir string, app *kong.Application) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, v := range Verbs(app.Node) {
		var b bytes.Buffer
		m.page(&b, app, v)
		name := strings.ReplaceAll(v.FullPath(), " ", "-") + ".1"
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Verbs are a node and all that is below it, without hidden ones.
func Verbs(node *kong.Node) []*kong.Node {
	all := []*kong.Node{node}
	for _, child := range node.Children {
		if !child.Hidden {
			all = append(all, Verbs(child)...)
		}
	}
	return all
}

// Flags are a verb's flags without --help, which all have.
func Flags(v *kong.Node) []*kong.Flag {
	var all []*kong.Flag
	for _, group := range v.AllFlags(true) {
		for _, f := range group {
			if f.Name != "help" {
				all = append(all, f)
			}
		}
	}
	return all
}

// spelling is how a flag is written on the command line.
func spelling(f *kong.Flag) string {
	text := "--" + f.Name
	if !f.IsBool() {
		text += "=" + f.FormatPlaceHolder()
	}
	if f.Short != 0 {
		text = fmt.Sprintf("-%c, %s", f.Short, text)
	}
	return text
}

// usage is the line that --help begins with.
func usage(app *kong.Application, v *kong.Node) string {
	if v == app.Node {
		return app.Name + app.Summary()
	}
	return app.Name + " " + v.Summary()
}

// kinds are those of errors, with the exit code of each.
func (m Manual) kinds() (rows [][2]string) {
	for _, k := range m.Kinds {
		rows = append(rows, [2]string{string(k.Kind), fmt.Sprintf("Exit code %d. %s", k.Exit, k.Doc)})
	}
	return rows
}

// page writes one page in the man macros.
func (m Manual) page(w io.Writer, app *kong.Application, v *kong.Node) {
	title := strings.ReplaceAll(v.FullPath(), " ", "-")
	fmt.Fprintf(w, ".TH %s 1 \"\" \"Trireme\" \"Trireme manual\"\n", roff(strings.ToUpper(title)))
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", roff(title), roff(sentence(v.Help)))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.nf\n%s\n.fi\n", roff(usage(app, v)))
	fmt.Fprintf(w, ".SH DESCRIPTION\n%s\n", roff(v.Help))
	if len(v.Positional) > 0 {
		fmt.Fprintln(w, ".SH ARGUMENTS")
		for _, a := range v.Positional {
			item(w, a.Summary(), a.Help)
		}
	}
	if flags := Flags(v); len(flags) > 0 {
		fmt.Fprintln(w, ".SH OPTIONS")
		for _, f := range flags {
			item(w, spelling(f), kong.DefaultHelpValueFormatter(f.Value))
		}
	}
	if len(v.Children) > 0 {
		fmt.Fprintln(w, ".SH COMMANDS")
		for _, child := range v.Children {
			if !child.Hidden {
				item(w, strings.ReplaceAll(child.FullPath(), " ", "-")+"(1)", child.Help)
			}
		}
	}
	if v == app.Node {
		for _, s := range []struct {
			name string
			rows [][2]string
		}{{"EXIT STATUS", m.ExitCodes}, {"ERROR KINDS", m.kinds()}, {"ENVIRONMENT", m.Environment}} {
			if len(s.rows) == 0 {
				continue
			}
			fmt.Fprintf(w, ".SH %s\n", s.name)
			for _, row := range s.rows {
				item(w, row[0], row[1])
			}
		}
		return
	}
	fmt.Fprintf(w, ".SH SEE ALSO\n.BR %s (1)\n", roff(strings.ReplaceAll(v.Parent.FullPath(), " ", "-")))
}

func item(w io.Writer, term, text string) { fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(term), roff(text)) }

// roff escapes what the typesetter would read.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", `\&...`, "`", `\(ga`, "“", `"`, "”", `"`).
		Replace(strings.TrimSpace(text))
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// Markdown writes the page of all verbs.
func (m Manual) Markdown(w io.Writer, app *kong.Application) error {
	var b bytes.Buffer
	b.WriteString(m.Intro)
	b.WriteString("\n## Exit codes\n\n| code | |\n|-|-|\n")
	for _, row := range m.ExitCodes {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
	}
	if len(m.Kinds) > 0 {
		b.WriteString(
			"\n## Error kinds\n\nOf `--json` and of the HTTP API. The list is closed; a newer version may add to it.\n\n" +
				"| kind | exit code | |\n|-|-|-|\n")
	}
	for _, k := range m.Kinds {
		fmt.Fprintf(&b, "| `%s` | %d | %s |\n", k.Kind, k.Exit, cell(k.Doc))
	}
	b.WriteString("\n## Environment\n\n| variable | |\n|-|-|\n")
	for _, row := range m.Environment {
		fmt.Fprintf(&b, "| `%s` | %s |\n", row[0], cell(row[1]))
	}
	all := Verbs(app.Node)[1:]
	m.common(&b, all)
	b.WriteString("\n## Verbs\n\n| verb | |\n|-|-|\n")
	for _, v := range all {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", v.Path(), strings.ReplaceAll(v.FullPath(), " ", "-"),
			cell(sentence(v.Help)))
	}
	for _, v := range all {
		fmt.Fprintf(&b, "\n### %s\n\n    %s\n\n%s\n", v.FullPath(), usage(app, v), v.Help)
		rows := [][2]string{}
		for _, a := range v.Positional {
			rows = append(rows, [2]string{a.Summary(), a.Help})
		}
		shared := m.sharedBy(v)
		for _, f := range Flags(v) {
			if shared == nil || !slices.Contains(m.Common, f.Name) {
				rows = append(rows, [2]string{spelling(f), kong.DefaultHelpValueFormatter(f.Value)})
			}
		}
		table(&b, rows)
		if shared != nil {
			b.WriteString("\nAnd the [common flags](#common-flags).\n")
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// sharedBy are the common flags of a verb; nil: it lacks one of them.
func (m Manual) sharedBy(v *kong.Node) (shared []*kong.Flag) {
	for _, f := range Flags(v) {
		if slices.Contains(m.Common, f.Name) {
			shared = append(shared, f)
		}
	}
	if len(shared) < len(m.Common) {
		return nil
	}
	return shared
}

// common writes the flags that many verbs have.
func (m Manual) common(b *bytes.Buffer, verbs []*kong.Node) {
	for _, v := range verbs {
		rows := [][2]string{}
		for _, f := range m.sharedBy(v) {
			rows = append(rows, [2]string{spelling(f), kong.DefaultHelpValueFormatter(f.Value)})
		}
		if len(rows) > 0 {
			b.WriteString("\n## Common flags\n\nOf all verbs that ask a cluster; below, such a verb has a link to them.\n")
			table(b, rows)
			return
		}
	}
}

// table writes flags or arguments, if there are any.
func table(b *bytes.Buffer, rows [][2]string) {
	if len(rows) > 0 {
		b.WriteString("\n| | |\n|-|-|\n")
	}
	for _, row := range rows {
		fmt.Fprintf(b, "| `%s` | %s |\n", strings.ReplaceAll(row[0], "|", `\|`), cell(row[1]))
	}
}

// cell keeps a text in its column.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
