package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Error is one mistake in a settings file.
type Error struct {
	File   string // "" when the settings did not come from a file
	Line   int    // 0 when the mistake is that something is missing
	Key    string // dotted; may be empty
	What   string // what is wrong
	Advice string // what to do
}

// Error gives "file:line: key: what; advice".
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	}
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.What)
	if e.Advice != "" {
		b.WriteString("; " + e.Advice)
	}
	return b.String()
}

// Load reads and validates a node's file. The first mistake is returned as an *Error.
func Load(path string) (Node, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Node{}, &Error{File: path, What: "no such file",
			Advice: "`trireme init` and `trireme join` make one in the node's directory; name it with --config or TRIREME_CONFIG"}
	}
	if err != nil {
		return Node{}, err
	}
	return Parse(path, data)
}

// Parse is Load for text already read; path is used in messages, and relative paths in the text are resolved against
// its folder.
func Parse(path string, data []byte) (Node, error) {
	doc := document{file: path, lines: strings.Split(string(data), "\n")}
	var tree map[string]any
	if _, err := toml.Decode(string(data), &tree); err != nil {
		var pe toml.ParseError
		if errors.As(err, &pe) {
			return Node{}, &Error{File: path, Line: pe.Position.Line, What: "not valid TOML: " + pe.Message}
		}
		return Node{}, &Error{File: path, What: err.Error()}
	}
	n := Default()
	n.File = path
	if err := bind(&n, tree, doc); err != nil {
		return Node{}, err
	}
	if doc.line("router.stream_port") == 0 && n.takesStreamPort() {
		n.Router.StreamPort = 0
	}
	n.resolvePaths(filepath.Dir(path))
	if err := n.validate(doc); err != nil {
		return Node{}, err
	}
	return n, nil
}

// takesStreamPort: a file from before there was a change stream may give its port to something else.
func (n Node) takesStreamPort() bool {
	p := n.Router.StreamPort
	_, peer, _ := splitAddress(n.Peer.Listen)
	_, api, _ := splitAddress(n.API.Listen)
	return slices.Contains([]int{n.MySQL.Port, n.Router.RWPort, n.Router.ROPort, n.Router.SplitPort, peer, api}, p)
}

// resolvePaths makes a relative dir or binary mean the same from wherever the daemon is started.
func (n *Node) resolvePaths(base string) {
	abs, err := filepath.Abs(base)
	if err != nil {
		abs = base
	}
	if n.Dir != "" && !filepath.IsAbs(n.Dir) {
		n.Dir = filepath.Join(abs, n.Dir)
	}
	if strings.Contains(n.MySQL.Binary, "/") && !filepath.IsAbs(n.MySQL.Binary) {
		n.MySQL.Binary = filepath.Join(abs, n.MySQL.Binary)
	}
	if f := n.Raft.LogKeyFile; f != "" && !filepath.IsAbs(f) {
		n.Raft.LogKeyFile = filepath.Join(abs, f)
	}
}

// bind copies the tree's values into n, in the order of the file, and stops at the first key that does not fit.
func bind(n *Node, tree map[string]any, doc document) error {
	flat := map[string]any{}
	flatten("", tree, flat)
	keys := make([]string, 0, len(flat))
	for k := range flat {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if d := doc.line(a) - doc.line(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for _, key := range keys {
		s := find(key)
		if s == nil {
			return doc.fail(key, "unknown setting", suggestion(key))
		}
		if err := assign(s.dest(n), flat[key]); err != nil {
			return doc.fail(key, err.Error(), "")
		}
	}
	return nil
}

// flatten turns nested tables into dotted keys; a table that is itself a setting (mysql.options) stays whole.
func flatten(prefix string, tree, out map[string]any) {
	for k, v := range tree {
		key := k
		if prefix != "" {
			key = prefix + "." + k
		}
		if sub, isTable := v.(map[string]any); isTable && find(key) == nil && isSection(key) {
			flatten(key, sub, out)
			continue
		}
		out[key] = v
	}
}

func find(key string) *setting {
	for i := range settings {
		if settings[i].key == key {
			return &settings[i]
		}
	}
	return nil
}

func isSection(key string) bool {
	return slices.ContainsFunc(settings, func(s setting) bool { return strings.HasPrefix(s.key, key+".") })
}

// assign converts one TOML value to the type of dest.
func assign(dest, value any) error {
	switch d := dest.(type) {
	case *string:
		s, ok := value.(string)
		if !ok {
			return fmt.Errorf("%v is not text; put it in quotes", value)
		}
		*d = s
	case *[]string:
		return assignList(d, value)
	case *int:
		switch v := value.(type) {
		case int64:
			if int64(int32(v)) != v {
				return fmt.Errorf("%d is out of range", v)
			}
			*d = int(v)
		case string:
			return fmt.Errorf("%q is text; write a whole number without quotes", v)
		default:
			return fmt.Errorf("%v is not a whole number", value)
		}
	case *Bytes:
		s, ok := value.(string)
		if !ok {
			return fmt.Errorf("%v has no unit; write it with one and in quotes, such as \"64MiB\"", value)
		}
		b, err := ParseBytes(s)
		if err != nil {
			return err
		}
		*d = b
	case *Duration:
		s, ok := value.(string)
		if !ok {
			return fmt.Errorf("%v has no unit; write it with one and in quotes, such as \"500ms\"", value)
		}
		t, err := ParseDuration(s)
		if err != nil {
			return err
		}
		*d = t
	case *map[string]string:
		return assignOptions(d, value)
	default:
		panic(fmt.Sprintf("config: setting of type %T", dest))
	}
	return nil
}

// assignList takes a list of texts, or one text for a list of one.
func assignList(dest *[]string, value any) error {
	if s, ok := value.(string); ok {
		value = []any{s}
	}
	list, ok := value.([]any)
	if !ok {
		return fmt.Errorf("%v is neither text in quotes nor a list of such", value)
	}
	var out []string
	for _, x := range list {
		s, ok := x.(string)
		if !ok {
			return fmt.Errorf("%v is not text; put it in quotes", x)
		}
		out = append(out, s)
	}
	*dest = out
	return nil
}

func assignOptions(dest *map[string]string, value any) error {
	table, ok := value.(map[string]any)
	if !ok {
		return errors.New("must be a table of option = value, such as [mysql.options]")
	}
	out := make(map[string]string, len(table))
	for k, v := range table {
		name := strings.ReplaceAll(k, "-", "_")
		if _, twice := out[name]; twice {
			return fmt.Errorf("%s is given twice", name)
		}
		switch x := v.(type) {
		case string:
			if strings.ContainsAny(x, "\n\r") {
				return fmt.Errorf("%s: a value is one line", name)
			}
			out[name] = x
		case bool:
			out[name] = map[bool]string{true: "ON", false: "OFF"}[x]
		case int64:
			out[name] = strconv.FormatInt(x, 10)
		case float64:
			out[name] = strconv.FormatFloat(x, 'g', -1, 64)
		default:
			return fmt.Errorf("%s: a value is text, a number, true or false", name)
		}
	}
	*dest = out
	return nil
}

// document knows on which line of the file a key stands. The TOML library keeps that to itself once it has decoded.
type document struct {
	file  string
	lines []string
}

// line of a dotted key, 0 when it is not in the file. A key of mysql.options is found under its own name.
func (d document) line(key string) int {
	section := ""
	for i, raw := range d.lines {
		text := strings.TrimSpace(raw)
		if strings.HasPrefix(text, "[") {
			section = strings.Trim(text[:strings.IndexAny(text+"]", "]")], "[] \t")
			if section == key {
				return i + 1
			}
			continue
		}
		name, _, isPair := strings.Cut(text, "=")
		if !isPair || strings.HasPrefix(text, "#") {
			continue
		}
		name = strings.Trim(strings.TrimSpace(name), `"'`)
		if section != "" {
			name = section + "." + name
		}
		if name == key {
			return i + 1
		}
	}
	return 0
}

func (d document) fail(key, what, advice string) *Error {
	return &Error{File: d.file, Line: d.line(key), Key: key, What: what, Advice: advice}
}

// suggestion names the known key that looks most like the unknown one: the same name in another section, else the
// fewest letters to change. An unknown section is compared with sections.
func suggestion(key string) string {
	_, name, nested := strings.Cut(key, ".")
	best, bestDistance := "", 4
	for _, s := range settings {
		section, known, hasSection := strings.Cut(s.key, ".")
		candidates := []string{s.key}
		if hasSection && !nested {
			candidates = append(candidates, section)
		}
		if nested && hasSection && known == name {
			return fmt.Sprintf("did you mean %s?", s.key)
		}
		for _, c := range candidates {
			if d := distance(key, c); d < bestDistance {
				best, bestDistance = c, d
			}
		}
	}
	if best == "" {
		return "docs/configuration.md lists all settings"
	}
	return fmt.Sprintf("did you mean %s?", best)
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
