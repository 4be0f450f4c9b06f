package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"trireme/internal/api"
	"trireme/internal/ops/cli"
)

var update = flag.Bool("update", false, "write docs/cli.md again")

func declarations(t *testing.T) *kong.Application {
	t.Helper()
	k, err := kong.New(new(commands), kong.Name("trireme"))
	if err != nil {
		t.Fatal(err)
	}
	return k.Model
}

// leaves are the verbs that can be run, but hidden ones.
func leaves(t *testing.T) []*kong.Node {
	all := cli.Verbs(declarations(t).Node)
	return slices.DeleteFunc(all, func(v *kong.Node) bool { return len(v.Children) > 0 })
}

// withoutJSON are the verbs that print no state, and why.
var withoutJSON = map[string]string{
	"node":           "a daemon: its log goes to standard error",
	"completion":     "a script for a shell",
	"mysql":          "becomes another program",
	"vip release":    "prints nothing",
	"backup new-key": "writes a file",
	"log new-key":    "writes a file",
}

func TestEveryVerbThatPrintsHasJSON(t *testing.T) {
	for _, v := range leaves(t) {
		has := slices.ContainsFunc(cli.Flags(v), func(f *kong.Flag) bool { return f.Name == "json" })
		if _, listed := withoutJSON[v.Path()]; has == listed {
			t.Errorf("%s: --json is there: %v; listed as a verb without: %v", v.Path(), has, listed)
		}
	}
	for name := range withoutJSON {
		if !slices.ContainsFunc(leaves(t), func(v *kong.Node) bool { return v.Path() == name }) {
			t.Errorf("there is no verb %q", name)
		}
	}
}

// TestHelp: every verb has help that fits, says the same as the manual, and ends its sentences.
func TestHelp(t *testing.T) {
	for _, v := range cli.Verbs(declarations(t).Node)[1:] {
		var out strings.Builder
		if code := run(append(strings.Fields(v.Path()), "--help"), os.Stdin, &out, &out); code != 0 ||
			!strings.HasPrefix(out.String(), "Usage: trireme "+v.Path()) {
			t.Errorf("%s --help: %d %s", v.Path(), code, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if cli.Columns(strings.TrimRight(line, "\n")) > cli.MaxColumns {
				t.Errorf("%s --help: %d columns: %s", v.Path(), cli.Columns(line), line)
			}
		}
		if !strings.HasSuffix(v.Help, ".") {
			t.Errorf("%s: %q is no sentence", v.Path(), v.Help)
		}
		for _, f := range cli.Flags(v) {
			if !strings.HasSuffix(f.Help, ".") {
				t.Errorf("%s --%s: %q is no sentence", v.Path(), f.Name, f.Help)
			}
		}
	}
}

// TestPages: docs/cli.md and docs/api.md are what the declarations say. go test ./cmd/trireme -run TestPages -update
// writes them.
func TestPages(t *testing.T) {
	var verbs, requests bytes.Buffer
	if err := manual.Markdown(&verbs, declarations(t)); err != nil {
		t.Fatal(err)
	}
	cli.WriteAPI(&requests)
	isPage(t, "cli.md", verbs.Bytes())
	isPage(t, "api.md", requests.Bytes())
	if page := requests.String(); !strings.Contains(page, "| [`POST /demote`](#post-demote) | admin | the leader |") ||
		!strings.Contains(page, "\n| `if_term` | number, may be left out |\n") {
		t.Errorf("docs/api.md lacks fields: %.200s", page)
	}
}

func isPage(t *testing.T, name string, want []byte) {
	t.Helper()
	page := filepath.Join("..", "..", "docs", name)
	if *update {
		if err := os.WriteFile(page, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("docs/%s is not what the declarations say: make manual", name)
	}
}

// TestEnvironment: the manual has each variable of ours that a flag or the program reads.
func TestEnvironment(t *testing.T) {
	told := map[string]bool{}
	for _, row := range environment {
		told[row[0]] = true
	}
	for _, v := range cli.Verbs(declarations(t).Node) {
		for _, f := range cli.Flags(v) {
			for _, name := range f.Envs {
				if strings.HasPrefix(name, "TRIREME_") && !told[name] {
					t.Errorf("the manual lacks %s of %s --%s", name, v.Path(), f.Name)
				}
			}
		}
	}
	reads := regexp.MustCompile(`Getenv\("(TRIREME_\w+)"\)`)
	for _, pattern := range []string{"*.go", "../../internal/*/*.go", "../../internal/*/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range reads.FindAllSubmatch(text, -1) {
				if !strings.HasSuffix(file, "_test.go") && !told[string(m[1])] {
					t.Errorf("the manual lacks %s, which %s reads", m[1], file)
				}
			}
		}
	}
}

// TestCommonFlags: the page tells of flags that many verbs have once, and each of those verbs has a link to them.
func TestCommonFlags(t *testing.T) {
	var b strings.Builder
	if err := manual.Markdown(&b, declarations(t)); err != nil {
		t.Fatal(err)
	}
	if page := b.String(); strings.Count(page, "| `--token-file=FILE` |") != 1 ||
		strings.Count(page, "(#common-flags)") < 30 ||
		!strings.Contains(page, "| `--cluster=\"main\"` | Name of the cluster. |") {
		t.Error("the page repeats common flags, lacks the links to them, or leaves out another flag of their name")
	}
}

// TestManPages: a page for each verb, with each of its flags; mandoc, if it is here, finds no error in them.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	if code := run([]string{"manual", dir}, os.Stdin, os.Stdout, os.Stderr); code != 0 {
		t.Fatal(code)
	}
	var pages []string
	for _, v := range cli.Verbs(declarations(t).Node) {
		page := filepath.Join(dir, strings.ReplaceAll(v.FullPath(), " ", "-")+".1")
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range cli.Flags(v) {
			if !bytes.Contains(b, []byte(strings.ReplaceAll("--"+f.Name, "-", `\-`))) {
				t.Errorf("%s does not tell of --%s", page, f.Name)
			}
		}
		pages = append(pages, page)
	}
	if found, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(found) != len(pages) {
		t.Errorf("%d pages of %d verbs: %v", len(found), len(pages), err)
	}
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("mandoc is not installed: the pages were not checked by it")
	}
	if out, err := exec.Command(mandoc, append([]string{"-T", "lint", "-W", "error"}, pages...)...).CombinedOutput(); err != nil {
		t.Errorf("mandoc: %v\n%s", err, out)
	}
}

func TestCandidates(t *testing.T) {
	var asked remote
	names := func(flags map[string]string) []string {
		asked = remote{API: flags["api"], Cluster: flags["cluster"]}
		return []string{"db1", "db2", "l1"}
	}
	complete := func(words ...string) string {
		var b strings.Builder
		if err := cli.Complete(&b, declarations(t), words, names); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for line, want := range map[string]string{
		"sw|":                              "switchover",
		"config |":                         "check diff edit history rollback show",
		"config e|":                        "edit",
		"frobnicate |":                     "",
		"completion |":                     "bash fish zsh",
		"completion bash |":                "",
		"switchover --t|":                  "--to --token-file",
		"switchover --to db1 --t|":         "--token-file",
		"switchover --to |":                "db1 db2 l1",
		"switchover --to db|":              "db1 db2",
		"switchover --to=d|":               "--to=db1 --to=db2",
		"switchover --to = d|":             "db1 db2", // bash cuts words at "="
		"switchover --to = |":              "db1 db2 l1",
		"switchover --json --to l|":        "l1",
		"switchover --nothing=|":           "",
		"status -w --i|":                   "--interval",
		"why-not |":                        "db1 db2 l1",
		"why-not db1 |":                    "",
		"promote db1 d|":                   "db1 db2",
		"promote db1 --demote |":           "db1 db2 l1",
		"add |":                            "",
		"add n4 --role l|":                 "learner logger",
		"init --durability=|":              "--durability=double --durability=log",
		"log dump |":                       ":files",
		"node --config |":                  ":files",
		"guard --|":                        "--help --node --vip",
		"gua|":                             "",
		"remove --api 10.0.0.1:8008 d|":    "db1 db2",
		"remove --api=10.0.0.1:8008 db1 |": "",
	} {
		var got []string
		words := strings.Split(strings.TrimSuffix(line, "|"), " ")
		for candidate := range strings.Lines(complete(words...)) {
			text, _, _ := strings.Cut(candidate, "\t")
			got = append(got, text)
		}
		slices.Sort(got)
		if all := strings.Join(got, " "); all != want {
			t.Errorf("%s: %q, not %q", line, all, want)
		}
	}
	complete("remove", "--api", "10.0.0.1:8008", "--cluster", "shop", "")
	if asked != (remote{API: "10.0.0.1:8008", Cluster: "shop"}) {
		t.Errorf("asked %+v", asked)
	}
}

// TestPalette: colours change nothing but the colour, and none are where they are not wanted.
func TestPalette(t *testing.T) {
	v := withoutLeader()
	v.Members[0].Warnings = []string{"its clock is wrong"}
	for name, view := range map[string]api.ClusterView{"leader": withLeader(), "none": v} {
		var plain, colour strings.Builder
		printStatus(&plain, false, view)
		printStatus(&colour, true, view)
		if strings.Contains(plain.String(), "\x1b") || !strings.Contains(colour.String(), "\x1b[31;1mdown\x1b[0m") {
			t.Errorf("%s: plain %q, in colour %q", name, plain.String(), colour.String())
		}
		if got := cli.Escapes.ReplaceAllString(colour.String(), ""); got != plain.String() {
			t.Errorf("%s: colours move what is shown:\n%s\n%s", name, got, plain.String())
		}
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal to be had: %v", err)
	}
	defer func() { _ = terminal.Close() }()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if !paletteFor(terminal) || paletteFor(&strings.Builder{}) {
		t.Error("colours are for terminals")
	}
	t.Setenv("NO_COLOR", "1")
	if paletteFor(terminal) {
		t.Error("NO_COLOR is not heard")
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if paletteFor(terminal) {
		t.Error("a dumb terminal has no colours")
	}
}

// TestStatusIsNarrow: long names and addresses cost columns of the table, never its width.
func TestStatusIsNarrow(t *testing.T) {
	v := withLeader()
	for i := range v.Members {
		m := &v.Members[i]
		m.Daemon.API = "database-" + m.Name + ".production.example.com:8008"
		if m.MySQL != nil {
			m.MySQL.Host = "database-" + m.Name + ".production.example.com"
		}
	}
	v.Members[1].Warnings = []string{strings.Repeat("a warning that goes on ", 10)}
	var b strings.Builder
	printStatus(&b, false, v)
	for line := range strings.Lines(b.String()) {
		if cli.Columns(line) > cli.MaxColumns+1 {
			t.Errorf("%d columns: %s", cli.Columns(line), line)
		}
	}
	for _, want := range []string{"NODE", "ROLE", "STATE", "LAG", "APPLIED"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s is left out:\n%s", want, b.String())
		}
	}
}

// TestSeedText: how much of how much, how fast, and how long still.
func TestSeedText(t *testing.T) {
	for _, c := range []struct {
		view *api.SeedView
		want string
	}{
		{nil, ""},
		{&api.SeedView{From: "db2"}, " (db2)"},
		{&api.SeedView{From: "db2", DoneBytes: 512 << 20, TotalBytes: 2048 << 20, BytesPerSecond: 96 << 20,
			Stage: "file copy"},
			" [#####...............] 512 of about 2048 MiB from db2, 96 MiB/s, about 16s left, file copy"},
		{&api.SeedView{From: "db2", TotalBytes: 2048 << 20}, " [....................] 0 of about 2048 MiB from db2"},
		{&api.SeedView{From: "db2", DoneBytes: 9 << 20, TotalBytes: 8 << 20, BytesPerSecond: 4 << 20},
			" [####################] 8 of about 8 MiB from db2, 4 MiB/s, about 0s left"},
	} {
		if got := seedText(c.view); got != c.want {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}
