package report

import (
	"fmt"
	"regexp"
)

var idForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// checker looks for what cannot be drawn.
type checker struct {
	ids map[string]string // ID -> what has it
}

// check returns the first rule of doc.go that the document breaks.
func (d Document) check() error {
	c := checker{ids: map[string]string{}}
	if err := c.blocks(Section{Blocks: d.Blocks}, "the document's start"); err != nil {
		return fmt.Errorf("report %q: %w", d.Title, err)
	}
	if err := c.sections(d.Sections); err != nil {
		return fmt.Errorf("report %q: %w", d.Title, err)
	}
	return nil
}

func (c *checker) sections(sections []Section) error {
	for _, s := range sections {
		place := fmt.Sprintf("section %q", s.Title)
		if !idForm.MatchString(s.ID) {
			return fmt.Errorf("%s has the ID %q: it takes lower-case letters, digits and single hyphens", place, s.ID)
		}
		if err := c.take(s.ID, place); err != nil {
			return err
		}
		if err := c.blocks(s, place); err != nil {
			return err
		}
		if err := c.sections(s.Sections); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) take(id, what string) error {
	if other, taken := c.ids[id]; taken {
		return fmt.Errorf("%s and %s have the same ID %q", other, what, id)
	}
	c.ids[id] = what
	return nil
}

func (c *checker) blocks(s Section, place string) error {
	charts, tables := 0, 0
	for _, b := range s.Blocks {
		var err error
		switch b := b.(type) {
		case Text, List, Facts:
		case Table:
			tables++
			err = b.check(fmt.Sprintf("table %d %q in %s", tables, b.Caption, place))
		case Chart:
			charts++
			err = c.take(chartID(s.ID, charts), fmt.Sprintf("chart %d %q in %s", charts, b.Title, place))
		default:
			err = fmt.Errorf("%s has a block of type %T: it takes Text, List, Facts, Table and Chart, no pointers", place, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t Table) check(what string) error {
	for i, row := range t.Rows {
		if len(row) != len(t.Columns) {
			return fmt.Errorf("%s: row %d has %d cells for %d columns", what, i+1, len(row), len(t.Columns))
		}
	}
	return nil
}

// chartID is the anchor of the n-th chart, from 1, of a section; of the document itself if section is empty.
func chartID(section string, n int) string {
	if section == "" {
		return fmt.Sprintf("chart-%d", n)
	}
	return fmt.Sprintf("%s-chart-%d", section, n)
}
