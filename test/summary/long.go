package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// long lists the tests below root that may come to a call of needs.Long or IsLong, themselves or through functions of
// their package: a line each, folder and test.
func long(out io.Writer, root string) error {
	calls := map[string]map[string][]string{} // by folder and function: what it calls
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		dir := filepath.Dir(path)
		if calls[dir] == nil {
			calls[dir] = map[string][]string{}
		}
		return readCalls(path, calls[dir])
	})
	if err != nil {
		return err
	}
	for _, dir := range slices.Sorted(maps.Keys(calls)) {
		for _, name := range slices.Sorted(maps.Keys(calls[dir])) {
			if strings.HasPrefix(name, "Test") && name != "TestMain" && reaches(calls[dir], name, map[string]bool{}) {
				rel, err := filepath.Rel(root, dir)
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintf(out, "./%s %s\n", rel, name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

const longCall = "needs.Long"

func readCalls(path string, calls map[string][]string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		name := f.Name.Name // a method shares the name of a function: rather one test too many
		calls[name] = append(calls[name], "")
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "needs" && (n.Sel.Name == "Long" || n.Sel.Name == "IsLong") {
					calls[name] = append(calls[name], longCall)
				}
				calls[name] = append(calls[name], n.Sel.Name)
			case *ast.Ident:
				calls[name] = append(calls[name], n.Name)
			}
			return true
		})
	}
	return nil
}

func reaches(calls map[string][]string, name string, seen map[string]bool) bool {
	if name == longCall {
		return true
	}
	if seen[name] {
		return false
	}
	seen[name] = true
	return slices.ContainsFunc(calls[name], func(called string) bool { return reaches(calls, called, seen) })
}
