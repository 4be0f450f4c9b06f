package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/BurntSushi/toml"
)

// Standalone is the settings of a router that runs on an application's host, without a node.
type Standalone struct {
	Nodes []string // host:port of nodes' APIs; one that answers tells of all others
	CA    string   // absolute path of the cluster's CA certificate
	// absolute path of a file with a viewer's token: switchovers wait for this router's sessions; empty: they do not
	Token string
	Router
	Log Log
}

// LoadStandalone reads and validates a router's file. The first mistake is returned as an *Error.
func LoadStandalone(path string) (Standalone, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Standalone{},
			&Error{File: path, What: "no such file",
				Advice: "name one with --config; docs/ops/router.md shows what belongs in it"}
	}
	if err != nil {
		return Standalone{}, err
	}
	return ParseStandalone(path, data)
}

// ParseStandalone is LoadStandalone for text already read. [router] and [log] hold what they do in a node's file.
func ParseStandalone(path string, data []byte) (Standalone, error) {
	doc := document{file: path, lines: strings.Split(string(data), "\n")}
	var tree map[string]any
	if _, err := toml.Decode(string(data), &tree); err != nil {
		var pe toml.ParseError
		if errors.As(err, &pe) {
			return Standalone{}, &Error{File: path, Line: pe.Position.Line, What: "not valid TOML: " + pe.Message}
		}
		return Standalone{}, &Error{File: path, What: err.Error()}
	}
	var a Standalone
	if err := a.takeNodes(tree["nodes"], doc); err != nil {
		return Standalone{}, err
	}
	if err := a.takeCA(tree["ca"], doc); err != nil {
		return Standalone{}, err
	}
	if err := a.takeToken(tree["token_file"], doc); err != nil {
		return Standalone{}, err
	}
	for _, own := range []string{"nodes", "ca", "token_file"} {
		delete(tree, own)
	}
	for key := range tree {
		if key != "router" && key != "log" {
			return Standalone{}, doc.fail(key, "unknown setting of a router",
				"there are: nodes, ca, token_file, [router], [log]; see docs/ops/router.md")
		}
	}
	n := Default()
	n.Router.StreamPort = 0
	if err := bind(&n, tree, doc); err != nil {
		return Standalone{}, err
	}
	if n.Router.StreamPort != 0 {
		return Standalone{}, doc.fail("router.stream_port", "is of a node only: this router has no log to serve",
			"read the change stream at a node")
	}
	a.Router, a.Log = n.Router, n.Log
	for _, check := range []func(document) *Error{n.checkRouter, n.checkLog} {
		if err := check(doc); err != nil {
			return Standalone{}, err
		}
	}
	return a, nil
}

func (a *Standalone) takeNodes(value any, doc document) error {
	list, ok := value.([]any)
	if !ok || len(list) == 0 {
		return doc.fail("nodes", "is missing", `add a line: nodes = ["db1:8008", "db2:8008", "db3:8008"]`)
	}
	for _, v := range list {
		addr, _ := v.(string)
		if err := CheckAdvertise(addr); err != nil {
			return doc.fail("nodes", fmt.Sprintf("%v is not host:port of a node's API", v), "")
		}
		a.Nodes = append(a.Nodes, addr)
	}
	return nil
}

func (a *Standalone) takeCA(value any, doc document) error {
	path, _ := value.(string)
	if path == "" {
		return doc.fail("ca", "is missing", `copy tls/ca.pem of any node here, and add a line: ca = "/etc/trireme/ca.pem"`)
	}
	abs, err := doc.absolute(path)
	a.CA = abs
	return err
}

func (a *Standalone) takeToken(value any, doc document) error {
	path, ok := value.(string)
	switch {
	case value == nil:
		return nil
	case !ok || path == "":
		return doc.fail("token_file", fmt.Sprintf("%v is no file", value),
			"`trireme token add NAME --role viewer` prints what belongs into one")
	}
	abs, err := doc.absolute(path)
	a.Token = abs
	return err
}

// absolute returns the absolute path of a file that a document names: relative paths start at the document's folder.
func (d document) absolute(path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(d.file), path)
	}
	return filepath.Abs(path)
}
