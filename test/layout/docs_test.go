package layout

import (
	"bufio"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// docsIndex is where every page of docs must be reachable from.
const docsIndex = "docs/README.md"

// TestDocs: no link of a page leads nowhere, every page of docs is reachable from the index, and the site's menu names
// pages that are there.
func TestDocs(t *testing.T) {
	root := strings.TrimSpace(goTool(t, "", "list", "-m", "-f", "{{.Dir}}"))
	pages := markdownPages(t, root)
	for page := range pages {
		for _, problem := range deadLinks(root, page, pages) {
			t.Error(problem)
		}
	}
	found := reachable(pages, docsIndex)
	for page := range pages {
		if strings.HasPrefix(page, "docs/") && !found[page] {
			t.Errorf("%s cannot be reached from %s", page, docsIndex)
		}
	}
	menu, err := os.ReadFile(filepath.Join(root, "mkdocs.yml"))
	if err != nil {
		t.Fatal(err)
	}
	entries := regexp.MustCompile(`(?m)^ +- [^:]+: (\S+\.md)$`).FindAllStringSubmatch(string(menu), -1)
	if len(entries) < 10 {
		t.Errorf("the menu of mkdocs.yml has %d pages", len(entries))
	}
	for _, entry := range entries {
		if _, there := pages["docs/"+entry[1]]; !there {
			t.Errorf("mkdocs.yml names docs/%s, which does not exist", entry[1])
		}
	}
}

// page is what a Markdown file links to, and what can be linked to in it.
type page struct {
	links   []string
	anchors map[string]bool
}

// markdownPages reads all pages but those of tests' data. Keys are relative to root.
func markdownPages(t *testing.T, root string) map[string]page {
	pages := map[string]page{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root ||
			slices.Contains([]string{"testdata", "dist", "site", "bin"}, d.Name())) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		pages[filepath.ToSlash(name)] = parsePage(string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

var (
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	codeSpan   = regexp.MustCompile("`[^`]*`")
	idAttr     = regexp.MustCompile(`id="([^"]+)"`)
)

// parsePage leaves code out: blocks that are fenced or indented, and spans.
func parsePage(text string) page {
	p := page{anchors: map[string]bool{}}
	fenced := false
	sc := bufio.NewScanner(strings.NewReader(text))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line := sc.Text()
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
			continue
		case fenced, strings.HasPrefix(line, "    "):
			continue
		}
		if head := strings.TrimLeft(line, "#"); head != line && strings.HasPrefix(head, " ") {
			p.anchors[anchor(head)] = true
		}
		for _, m := range idAttr.FindAllStringSubmatch(line, -1) {
			p.anchors[m[1]] = true
		}
		for _, m := range linkTarget.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
			p.links = append(p.links, m[1])
		}
	}
	return p
}

// anchor is what GitHub and MkDocs make of a heading.
func anchor(heading string) string {
	heading = linkText.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.TrimSpace(heading))
}

// target of a link in a page, and the part of it that is meant; false for one that leads elsewhere.
func target(from, link string) (path, part string, ours bool) {
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "" || u.Host != "" {
		return "", "", false
	}
	if u.Path == "" {
		return from, u.Fragment, true
	}
	return filepath.ToSlash(filepath.Join(filepath.Dir(from), u.Path)), u.Fragment, true
}

func deadLinks(root, from string, pages map[string]page) (problems []string) {
	for _, link := range pages[from].links {
		path, part, ours := target(from, link)
		if !ours {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			problems = append(problems, from+" links to "+link+", which is not there")
			continue
		}
		if to, isPage := pages[path]; isPage && part != "" && !to.anchors[part] {
			problems = append(problems, from+" links to "+link+", which has no such heading")
		}
	}
	return problems
}

// reachable pages, from one on. A link to a directory is one to its README.
func reachable(pages map[string]page, from string) map[string]bool {
	found := map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		if _, there := pages[name]; !there {
			name += "/README.md"
		}
		p, there := pages[name]
		if !there || found[name] {
			return
		}
		found[name] = true
		for _, link := range p.links {
			if path, _, ours := target(name, link); ours {
				visit(path)
			}
		}
	}
	visit(from)
	return found
}

// TestDocsCheck shows that each rule can fail.
func TestDocsCheck(t *testing.T) {
	root := t.TempDir()
	pages := map[string]page{}
	for name, text := range map[string]string{
		"docs/README.md": "# A `b` c\n[x](sub/x.md#it-s)\n[w](https://a.example/none.md) `[c](code.md)`\n```\n[f](fenced.md)\n```\n    [i](indented.md)\n[d](sub)\n",
		"docs/sub/x.md":  "## It 's\n[up](../README.md#a-b-c) [gone](gone.md) [part](../README.md#nothing) [self](#it-s)\n",
		"docs/alone.md":  "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		pages[name] = parsePage(text)
	}
	if got := deadLinks(root, "docs/README.md", pages); len(got) != 0 {
		t.Error(got)
	}
	got := deadLinks(root, "docs/sub/x.md", pages)
	if len(got) != 2 || !strings.Contains(got[0], "gone.md, which is not there") ||
		!strings.Contains(got[1], "#nothing, which has no such heading") {
		t.Error(got)
	}
	if found := reachable(pages, "docs/README.md"); len(found) != 2 || found["docs/alone.md"] {
		t.Error(found)
	}
}

// TestDocsVerbs: pages name only verbs that exist. docs/cli.md has all of trireme and docs/lab.md all of trireme-lab
// (tests of both keep them complete).
func TestDocsVerbs(t *testing.T) {
	root := strings.TrimSpace(goTool(t, "", "list", "-m", "-f", "{{.Dir}}"))
	reference, err := os.ReadFile(filepath.Join(root, "docs/cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	verbs := verbsOf("trireme", string(reference))
	if len(verbs) < 30 {
		t.Fatalf("docs/cli.md has %d verbs", len(verbs))
	}
	verbs["guard"] = nil // a process that the daemon starts, hidden in the reference
	if reference, err = os.ReadFile(filepath.Join(root, "docs/lab.md")); err != nil {
		t.Fatal(err)
	}
	lab := verbsOf("trireme-lab", string(reference))
	if len(lab) < 3 {
		t.Fatalf("docs/lab.md has %d verbs", len(lab))
	}
	for name := range markdownPages(t, root) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, unknown := range unknownVerbs("trireme", string(text), verbs) {
			t.Errorf("%s names %q, which is not in docs/cli.md", name, unknown)
		}
		for _, unknown := range unknownVerbs("trireme-lab", string(text), lab) {
			t.Errorf("%s names %q, which is not in docs/lab.md", name, unknown)
		}
	}
	for text, want := range map[string]int{"`trireme cert gaps`": 1, "    $ trireme gone\n": 1,
		"`trireme cert ca --pem`\n    trireme add n2\nthe trireme of old": 0} {
		if got := unknownVerbs("trireme", text, verbs); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}

// verbsOf the reference of a program: those that have verbs of their own, with these.
func verbsOf(program, reference string) map[string][]string {
	verbs := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^### `+program+` ([a-z-]+)(?: ([a-z-]+))?$`).
		FindAllStringSubmatch(reference, -1) {
		below := verbs[m[1]]
		if m[2] != "" {
			below = append(below, m[2])
		}
		verbs[m[1]] = below
	}
	return verbs
}

// namedVerb is a command of a program at the beginning of a code span or of an indented line.
func namedVerb(program string) *regexp.Regexp {
	return regexp.MustCompile("(?m)(?:`|^    +(?:\\$ |# |[a-z0-9]+\\$ )?)(?:sudo bin/|bin/)?" + program +
		" ([a-z][a-z-]*)(?: ([a-z][a-z-]*)\\b)?")
}

func unknownVerbs(program, text string, verbs map[string][]string) (unknown []string) {
	for _, m := range namedVerb(program).FindAllStringSubmatch(text, -1) {
		below, known := verbs[m[1]]
		if !known || m[2] != "" && len(below) > 0 && !slices.Contains(below, m[2]) {
			unknown = append(unknown, strings.TrimSpace(m[1]+" "+m[2]))
		}
	}
	return unknown
}

// spanPath is a code span that names a Go file in a folder, or a folder; a * stands for any part of a name.
var spanPath = regexp.MustCompile(`^(?:[a-z0-9*_-]+/)+[a-z0-9*_]+\.go$|^[a-z0-9_-]+(?:/[a-z0-9_-]+)+/?$`)

// spanName is one that names what a package declares.
var spanName = regexp.MustCompile(`^([a-z0-9]+)\.([A-Za-z]\w*)(?:\(.*)?$`)

// TestDocsPaths: the pages for those who change Trireme name files, folders and declarations that exist. A path begins
// in the root, or below internal.
func TestDocsPaths(t *testing.T) {
	root := strings.TrimSpace(goTool(t, "", "list", "-m", "-f", "{{.Dir}}"))
	for name, least := range map[string]int{"docs/ARCHITECTURE.md": 40, "CONTRIBUTING.md": 15} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		problems, named := unknownPaths(root, string(text))
		for _, problem := range problems {
			t.Errorf("%s names %s, which does not exist", name, problem)
		}
		if named < least {
			t.Errorf("%s: only %d paths and names were found in it", name, named)
		}
	}
	for text, want := range map[string]int{"`core/ha/ha.go` `internal/core/ha` `lab/sim/member*.go` `ha.Decide`": 0,
		"`core/ha/gone.go`": 1, "`core/gone`": 1, "`core/ha/x*.go`": 1, "`ha.NotThere`": 1,
		"`mysql/data` `node.json` `db4/x.pem` `and/or` `bin/gone`": 0} {
		if got, _ := unknownPaths(root, text); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}

// unknownPaths of a page, and how many paths and names it has in all.
func unknownPaths(root, text string) (unknown []string, named int) {
	for _, span := range codeSpan.FindAllString(text, -1) {
		span = strings.Trim(span, "`")
		var known bool
		if first, _, _ := strings.Cut(span, "/"); spanPath.MatchString(span) {
			isGo := strings.HasSuffix(span, ".go")
			if first == "bin" || !isGo && (first == "mysql" && !matches(root, "internal/mysql/"+span[len("mysql/"):]) ||
				!isFolder(root, first)) {
				continue // a node's directory, what make builds, or no path at all
			}
			known = matches(root, span) || matches(root, "internal/"+span)
		} else if m := spanName.FindStringSubmatch(span); m != nil {
			folders := foldersNamed(root, m[1])
			if len(folders) == 0 || slices.Contains([]string{"json", "toml", "md"}, m[2]) {
				continue
			}
			known = declares(folders, m[2])
		} else {
			continue
		}
		if named++; !known {
			unknown = append(unknown, span)
		}
	}
	return unknown, named
}

func matches(root, pattern string) bool {
	found, err := filepath.Glob(filepath.Join(root, pattern))
	return err == nil && len(found) > 0
}

func isFolder(root, first string) bool {
	return matches(root, first) || matches(root, "internal/"+first)
}

// foldersNamed are the packages whose folder has that name.
func foldersNamed(root, name string) (folders []string) {
	for _, pattern := range []string{"internal/", "internal/*/", "lab/", "test/"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern+name))
		folders = append(folders, found...)
	}
	return folders
}

// declares tells whether one of the folders has code with that word: a declaration, a method or a field.
func declares(folders []string, name string) bool {
	word := regexp.MustCompile(`(?m)^(?:[^/\n]|/[^/\n])*\b` + name + `\b`)
	for _, folder := range folders {
		files, _ := filepath.Glob(filepath.Join(folder, "*.go"))
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && word.Match(text) {
				return true
			}
		}
	}
	return false
}
