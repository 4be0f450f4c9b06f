package walk

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A page is a page of the documentation, taken apart.
type page struct {
	path     string
	lines    []string
	commands []*command
}

// A command is one that a page shows.
type command struct {
	line   int    // its index in the page's lines
	indent string // of the code block
	host   string
	text   string
	from   int // of the lines below it, the first that it prints; to is the line below the last
	to     int
	typed  []string // in answer to what it asks, or into the MySQL client
	client bool     // it is a MySQL client
	name   string   // as the list of walks has it; where a page shows it again, with (2), (3) and so on
}

var (
	commandLine = regexp.MustCompile(`^(\s*)([a-z]+\d#|\$) (.+)$`)
	askedLine   = regexp.MustCompile(`to continue: (\S.*)$`)
)

func readPage(path string) (*page, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &page{path: path, lines: strings.Split(string(b), "\n")}
	var c *command
	for i, line := range p.lines {
		block := strings.HasPrefix(line, "    ")
		m := commandLine.FindStringSubmatch(line)
		switch {
		case !block && strings.TrimSpace(line) != "":
			c = nil
		case block && m != nil:
			host, _ := strings.CutSuffix(strings.Replace(m[2], "$", "db1#", 1), "#")
			text, _, _ := strings.Cut(m[3], "   #") // a remark
			c = &command{line: i, indent: m[1], host: host, text: strings.TrimSpace(text), from: i + 1, to: i + 1}
			p.commands = append(p.commands, c)
		case c != nil && block && i == c.to && strings.HasSuffix(c.text, "\\"): // it continues
			text, _, _ := strings.Cut(strings.TrimSpace(line), "   #")
			c.text = strings.TrimSuffix(c.text, "\\") + strings.TrimSpace(text)
			c.from, c.to = i+1, i+1
		case c == nil || !block:
		case strings.HasPrefix(line, c.indent+"# ") && i+1 < len(p.lines) && commandLine.MatchString(p.lines[i+1]):
			c = nil // a remark about the next command
		default:
			c.to = i + 1
			if typed, is := strings.CutPrefix(line[len(c.indent):], "mysql> "); is {
				c.client = true
				if typed != "exit" {
					c.typed = append(c.typed, typed)
				}
			} else if m := askedLine.FindStringSubmatch(line); m != nil {
				c.typed = append(c.typed, m[1])
			}
		}
	}
	times := map[string]int{}
	for _, c := range p.commands {
		c.name = c.host + "# " + c.text
		if times[c.name]++; times[c.name] > 1 {
			c.name += fmt.Sprintf(" (%d)", times[c.name])
		}
	}
	return p, nil
}

// wanted is what the page says that a command prints.
func (p *page) wanted(c *command) []string {
	var out []string
	for _, line := range p.lines[c.from:c.to] {
		out = append(out, strings.TrimPrefix(line, c.indent))
	}
	return out
}

// paste puts what a command prints into the page.
func (p *page) paste(c *command, printed []string) {
	var text []string
	for _, line := range printed {
		if line != "" {
			line = c.indent + line
		}
		text = append(text, line)
	}
	grown := len(text) - (c.to - c.from)
	p.lines = slices.Replace(p.lines, c.from, c.to, text...)
	for _, other := range p.commands {
		if other.line > c.line {
			other.line, other.from, other.to = other.line+grown, other.from+grown, other.to+grown
		}
	}
	c.to += grown
}

func (p *page) write() error {
	return os.WriteFile(p.path, []byte(strings.Join(p.lines, "\n")), 0o644)
}

var (
	// UUIDs, serial numbers and the like, and what a page shows of them
	hexes = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{16,}\b|\b[0-9A-F]{12}\b|` +
		`\b[0-9a-f]{4,16}…`)
	number = regexp.MustCompile(`\d+(\.\d+)*`)
	times  = regexp.MustCompile(`\b(0(h|m|s|ms|µs))+\b`) // once their numbers are 0
	tokens = regexp.MustCompile(`trj1\.\S+`)
	spaces = regexp.MustCompile(`\s+`)
)

// plain is a text without what differs from one run to the next.
func plain(s string) string {
	s = hexes.ReplaceAllString(tokens.ReplaceAllString(s, "trj"), "0")
	s = times.ReplaceAllString(number.ReplaceAllString(s, "0"), "0s")
	return strings.TrimSpace(spaces.ReplaceAllString(s, " "))
}

// matches says whether what was printed is what a page says.
func matches(page, printed []string) bool {
	parts := strings.Split(plain(strings.Join(page, "\n")), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(strings.TrimSpace(parts[i]))
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(plain(strings.Join(printed, "\n")))
}

// TestPage: what is a command of a page, what it prints and what is typed.
func TestPage(t *testing.T) {
	const text = `# A page

Text with ` + "`$ no command`" + `.

    db2# trireme leave    # a remark
    Cluster shop ends.
    Type the cluster's name to continue: shop

    done
    $ trireme mysql
    mysql> SELECT 1;
    mysql> exit
    db3# trireme adopt --user root \
           --name db3 &&   # a remark
    a line

Then:

    [settings]
`
	path := t.TempDir() + "/page.md"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := readPage(path)
	if err != nil || len(p.commands) != 3 {
		t.Fatalf("%+v, %v", p, err)
	}
	leave, client := p.commands[0], p.commands[1]
	if leave.host != "db2" || leave.text != "trireme leave" || fmt.Sprint(leave.typed) != "[shop]" ||
		len(p.wanted(leave)) != 4 || leave.client {
		t.Errorf("%+v, %q", leave, p.wanted(leave))
	}
	if client.host != "db1" || !client.client || fmt.Sprintf("%q", client.typed) != `["SELECT 1;"]` {
		t.Errorf("%+v", client)
	}
	if c := p.commands[2]; c.text != "trireme adopt --user root --name db3 &&" || fmt.Sprint(p.wanted(c)) != "[a line]" {
		t.Errorf("%+v, %q", c, p.wanted(c))
	}
	p.paste(leave, []string{"one", "", "two"})
	p.paste(client, []string{"three"})
	if err := p.write(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if want := strings.NewReplacer("    Cluster shop ends.\n    Type the cluster's name to continue: shop\n\n    done\n",
		"    one\n\n    two\n", "    mysql> SELECT 1;\n    mysql> exit\n", "    three\n").Replace(text); string(b) != want {
		t.Errorf("%v:\n%s\nwant:\n%s", err, b, want)
	}
}

// TestMatches: what counts as the same.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		page, printed string
		same          bool
	}{
		{"db2 leads, in term 3; writes were held for 19 ms", "db2 leads, in term 14; writes were held for 7 ms", true},
		{"db2 leads now", "db3 leads now", true}, // a number is a number
		{"db2  leads", "db2 leads", true},
		{"db2 leads", "db2 leads and is healthy", false},
		{"db2 … healthy", "db2 leads and is healthy", true},
		{"…\ndb2 leads", "one\ntwo\ndb2 leads", true},
		{"…\ndb2 leads", "one\ntwo\ndb2 follows", false},
		{"one\ntwo", "one", false},
		{"db2 leads and is healthy", "db2 leads and\n   is healthy", true}, // lines end where the numbers let them
		{"one (two)", "one two", false},
		{"0000c73d-3430-80ca-8001-000000000001:9", "0000f699-6f81-850f-8001-000000000002:31", true},
		{"0000…:9", "0000f699-6f81-850f-8001-000000000002:31", true},
		{"equal (300ms)", "equal (1.6s)", true},
		{"due in 59m21s", "due in 58s", true},
	} {
		if got := matches(strings.Split(c.page, "\n"), strings.Split(c.printed, "\n")); got != c.same {
			t.Errorf("%q and %q: %v", c.page, c.printed, got)
		}
	}
}
