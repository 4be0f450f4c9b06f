package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"slices"
	"time"

	"trireme/internal/base/durable"
)

// state is how far an interrupted run came, in a file of the operator's.
type state struct {
	Cluster string   `json:"cluster"`
	Only    []string `json:"only"`
	Done    []string `json:"done"` // tables, with their definitions
	Table   string   `json:"table,omitempty"`
	Key     []string `json:"key,omitempty"` // of Table, compared up to here; hex and numbers, as column.fetched reads them
	Result  Result   `json:"result"`

	path  string
	saved time.Time
}

const saveEvery = 2 * time.Second

// mark is a table with its definition: a key of another one means nothing.
func mark(t *table) string {
	return fmt.Sprintf("%s %08x", t, crc32.ChecksumIEEE([]byte(t.definition+t.keyName)))
}

// resume reads the file, if there is one; the result goes on from there.
func (c *checker) resume([]*table) (*state, error) {
	st := &state{Cluster: c.res.Cluster, Only: c.o.Only, path: c.o.State}
	if st.path == "" {
		return st, nil
	}
	text, err := os.ReadFile(st.path)
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err != nil {
		return nil, err
	}
	old := state{path: st.path}
	if err := json.Unmarshal(text, &old); err != nil {
		return nil, fmt.Errorf("%s is not the state of a check: %w; remove it to start again", st.path, err)
	}
	if old.Cluster != st.Cluster || !slices.Equal(old.Only, st.Only) {
		return nil, fmt.Errorf("%s belongs to a check of other tables or of cluster %s; remove it to start again", st.path,
			old.Cluster)
	}
	r := old.Result
	c.o.Say("continuing the check of %s, after %d rows", r.Began.Format(time.DateTime), r.Rows)
	c.res.Began, c.res.Position, c.res.Tables, c.res.Rows, c.res.Ranges, c.res.Locked = r.Began, r.Position, r.Tables,
		r.Rows, r.Ranges, r.Locked
	for _, d := range r.Differences {
		if d.Kind == KindRows { // the others have been found again
			c.res.Differences = append(c.res.Differences, d)
		}
	}
	c.res.NotChecked = append(c.res.NotChecked, r.NotChecked...)
	return &old, nil
}

func (st *state) has(t *table) bool { return slices.Contains(st.Done, mark(t)) }

// at is the key to continue after; nil: the beginning.
func (st *state) at(t *table) []string {
	if st.Table == mark(t) && len(st.Key) == len(t.key) {
		return st.Key
	}
	return nil
}

// reached notes the end of a range.
func (st *state) reached(t *table, key []string, r *Result) error {
	st.Table, st.Key = mark(t), key
	if time.Since(st.saved) < saveEvery {
		return nil
	}
	return st.save(r)
}

// finished notes the end of a table.
func (st *state) finished(t *table, r *Result) error {
	st.Done, st.Table, st.Key = append(st.Done, mark(t)), "", nil
	return st.save(r)
}

func (st *state) save(r *Result) error {
	if st.path == "" {
		return nil
	}
	st.Result, st.saved = *r, time.Now()
	text, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return durable.WriteFile(st.path, text, 0o600)
}

// remove ends it: the next run begins again.
func (st *state) remove() error {
	if st.path == "" {
		return nil
	}
	if err := os.Remove(st.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
