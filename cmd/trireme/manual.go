package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"trireme/internal/api"
)

// manualCmd writes the manual from the same declarations that --help is printed from.
type manualCmd struct {
	Dir      string `arg:"" optional:"" type:"path" help:"Where the man pages go, one for each verb."`
	Markdown bool   `help:"Print docs/cli.md."`
}

// Run writes the pages.
func (c *manualCmd) Run(e *env) error {
	if c.Markdown {
		return markdown(e.out, e.app)
	}
	if c.Dir == "" {
		return usagef("where do the pages go? Give a directory")
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	for _, v := range verbs(e.app.Node) {
		var b bytes.Buffer
		manPage(&b, e.app, v)
		name := strings.ReplaceAll(v.FullPath(), " ", "-") + ".1"
		if err := os.WriteFile(filepath.Join(c.Dir, name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// verbs are a node and all that is below it, without hidden ones.
func verbs(node *kong.Node) []*kong.Node {
	all := []*kong.Node{node}
	for _, child := range node.Children {
		if !child.Hidden {
			all = append(all, verbs(child)...)
		}
	}
	return all
}

// ownFlags are a verb's flags without --help, which all have.
func ownFlags(v *kong.Node) []*kong.Flag {
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

// exitCodes and environment are told on the pages of trireme itself.
var (
	exitCodes = [][2]string{{"0", "Done."}, {"1", "Failed, or a check found something."}, {"2", "The command line is wrong; nothing was done."},
		{"3", "Nobody answers, or there is no leader or no majority."},
		{"4", "The daemon or router ended, and starting it again would not help."}}
	environment = [][2]string{
		{"TRIREME_API", "Node to talk to, when --api is not given."},
		{"TRIREME_CLUSTER", "Whose credential in ~/.config/trireme to use when there are several."},
		{"TRIREME_TOKEN", "The operator's token, when --token-file is not given."},
		{"TRIREME_CONFIG", "Settings of this host's node, in place of /etc/trireme/trireme.toml."},
		{"TRIREME_JOIN_TOKEN", "Join token of join and adopt."},
		{"TRIREME_MYSQL_PASSWORD", "Password of --user of adopt, check and advise, when --password-file is not given."},
		{"EDITOR", "For config edit without arguments."},
		{"MYSQLD", "mysqld to run, when mysql.binary is not set."},
		{"NO_COLOR", "Not empty: no colours. There are none either where the output is no terminal."},
	}
)

// errorKinds are told with the exit code of each.
func errorKinds() (rows [][2]string) {
	for _, k := range api.Kinds {
		rows = append(rows, [2]string{string(k.Kind), fmt.Sprintf("Exit code %d. %s", k.Exit, k.Doc)})
	}
	return rows
}

// manPage writes one page in the man macros.
func manPage(w io.Writer, app *kong.Application, v *kong.Node) {
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
	if flags := ownFlags(v); len(flags) > 0 {
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
		}{{"EXIT STATUS", exitCodes}, {"ERROR KINDS", errorKinds()}, {"ENVIRONMENT", environment}} {
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
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", `\&...`, "`", `\(ga`, "“", `"`, "”", `"`).Replace(strings.TrimSpace(text))
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// cliIntro is what docs/cli.md says of all verbs.
//
//go:embed cli.md
var cliIntro string

// markdown writes docs/cli.md.
func markdown(w io.Writer, app *kong.Application) error {
	var b bytes.Buffer
	b.WriteString(cliIntro)
	b.WriteString("\n## Exit codes\n\n| code | |\n|-|-|\n")
	for _, row := range exitCodes {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
	}
	b.WriteString("\n## Error kinds\n\nOf `--json` and of the HTTP API. The list is closed; a newer version may add to it.\n\n" +
		"| kind | exit code | |\n|-|-|-|\n")
	for _, k := range api.Kinds {
		fmt.Fprintf(&b, "| `%s` | %d | %s |\n", k.Kind, k.Exit, cell(k.Doc))
	}
	b.WriteString("\n## Environment\n\n| variable | |\n|-|-|\n")
	for _, row := range environment {
		fmt.Fprintf(&b, "| `%s` | %s |\n", row[0], cell(row[1]))
	}
	b.WriteString("\n## Verbs\n\n| verb | |\n|-|-|\n")
	all := verbs(app.Node)[1:]
	for _, v := range all {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", v.Path(), strings.ReplaceAll(v.FullPath(), " ", "-"), cell(sentence(v.Help)))
	}
	for _, v := range all {
		fmt.Fprintf(&b, "\n### %s\n\n    %s\n\n%s\n", v.FullPath(), usage(app, v), v.Help)
		rows := [][2]string{}
		for _, a := range v.Positional {
			rows = append(rows, [2]string{a.Summary(), a.Help})
		}
		for _, f := range ownFlags(v) {
			rows = append(rows, [2]string{spelling(f), kong.DefaultHelpValueFormatter(f.Value)})
		}
		if len(rows) > 0 {
			b.WriteString("\n| | |\n|-|-|\n")
		}
		for _, row := range rows {
			fmt.Fprintf(&b, "| `%s` | %s |\n", strings.ReplaceAll(row[0], "|", `\|`), cell(row[1]))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// cell keeps a text in its column.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
