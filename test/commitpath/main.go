// Command commitpath prints a digest of the commit path: of what runs between a COMMIT and its OK, elects, fences and
// recovers. That is the file that starts the daemon, internal/node, and every package that it imports but those that
// only show, as Go's tokens: neither comments nor tests nor line breaks count. Build tags in GOFLAGS do, as for the
// build. Of packages of others the versions of their modules count, and of Go the version in go.mod. When the digest
// changes, the counts of fault campaigns start again (docs/safety).
//
//	commitpath         in the root of the project
//	commitpath -list   the files that it is made from
package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	daemon = "cmd/trireme/daemon.go" // verbs that ask a daemon are in the same program, and touch no write
	begin  = "internal/node"
)

// shows are packages of a daemon that only show: a new chart takes no count of faults away.
var shows = []string{"internal/control/dashboard", "internal/control/recorder"}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "commitpath:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if !slices.Equal(args, []string{"-list"}) {
		d, err := digest(".")
		if err == nil {
			fmt.Println(d)
		}
		return err
	}
	pkgs, err := list(".")
	if err != nil {
		return err
	}
	files, _ := onPath(pkgs)
	fmt.Println(strings.Join(append(files, daemon), "\n"))
	return nil
}

// module as `go list` tells it.
type module struct {
	Path, Version, GoVersion string
	Main                     bool
	Replace                  *module
}

// pkg as `go list` tells it.
type pkg struct {
	ImportPath, Dir string
	GoFiles         []string
	SFiles          []string
	EmbedFiles      []string
	Imports         []string
	Standard        bool
	Module          *module
}

// digest is 16 hexadecimal digits.
func digest(root string) (string, error) {
	pkgs, err := list(root)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	files, modules := onPath(pkgs)
	for _, m := range modules {
		fmt.Fprintln(sum, m)
	}
	for _, f := range append(files, daemon) {
		if err := tokens(sum, root, f); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), nil
}

// list asks Go what internal/node is made of, for one kind of machine: a build for another one is the same path.
func list(root string) (map[string]pkg, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,SFiles,EmbedFiles,Imports,Standard,Module",
		"./"+begin)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return nil, fmt.Errorf("%v: %w: %s", cmd.Args, err, failed.Stderr)
	} else if err != nil {
		return nil, fmt.Errorf("%v: %w", cmd.Args, err)
	}
	pkgs := map[string]pkg{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return pkgs, nil
		case err != nil:
			return nil, fmt.Errorf("%v: %w", cmd.Args, err)
		}
		pkgs[p.ImportPath] = p
	}
}

// onPath goes from internal/node along the imports: our files, relative to the root, and the modules of others.
func onPath(pkgs map[string]pkg) (files, modules []string) {
	seen := map[string]bool{}
	var visit func(path string)
	visit = func(path string) {
		p, known := pkgs[path]
		if !known || seen[path] || p.Standard {
			return
		}
		seen[path] = true
		m := p.Module
		if !m.Main {
			if m.Replace != nil {
				m = m.Replace
			}
			modules = append(modules, m.Path+" "+m.Version)
		} else {
			folder := strings.TrimPrefix(path, m.Path+"/")
			if slices.Contains(shows, folder) {
				return
			}
			modules = append(modules, "go "+m.GoVersion)
			for _, f := range slices.Concat(p.GoFiles, p.SFiles, p.EmbedFiles) {
				files = append(files, folder+"/"+f)
			}
		}
		for _, i := range p.Imports {
			visit(i)
		}
	}
	for path, p := range pkgs {
		if p.Module != nil && p.Module.Main && strings.TrimPrefix(path, p.Module.Path+"/") == begin {
			visit(path)
		}
	}
	slices.Sort(files)
	slices.Sort(modules)
	return files, slices.Compact(modules)
}

// tokens writes what the compiler sees of a file, directives included; all of one that is no Go.
func tokens(out io.Writer, root, name string) error {
	src, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return err
	}
	fmt.Fprintln(out, name)
	if filepath.Ext(name) != ".go" {
		_, err := out.Write(src)
		return err
	}
	var (
		s    scanner.Scanner
		errs scanner.ErrorList
	)
	s.Init(token.NewFileSet().AddFile(name, -1, len(src)), src, errs.Add, scanner.ScanComments)
	for mark := ""; ; { // a semicolon or comma, which a line break before a closing bracket demands
		_, tok, text := s.Scan()
		switch tok {
		case token.COMMENT:
			if !strings.HasPrefix(text, "//go:") {
				continue
			}
		case token.SEMICOLON, token.COMMA:
			mark = tok.String()
			continue
		case token.RPAREN, token.RBRACK, token.RBRACE:
			mark = ""
		case token.EOF:
			return errs.Err()
		}
		fmt.Fprintln(out, mark, tok, text)
		mark = ""
	}
}
