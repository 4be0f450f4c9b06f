package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// SettingsFormat is the newest format of the cluster settings that this version understands. Keys that an older version
// may ignore need no new one: it keeps them (kept). A change that an older version must not ignore raises it, and sets
// Cluster.Needs where it is made use of.
const SettingsFormat = 3

// ErrNewer says that only a newer version understands the settings.
var ErrNewer = errors.New("a newer version of Trireme wrote this: upgrade this node")

// ErrDamaged says that a file which Trireme wrote cannot be understood. It is left as it is.
var ErrDamaged = errors.New("remove this node and let it join again (docs/ops/replace-a-node.md)")

// Damaged names the file; ErrNewer stays what it is.
func Damaged(path string, err error) error {
	if errors.Is(err, ErrNewer) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Errorf("%s is damaged: %w; %w", path, err, ErrDamaged)
}

// kept are the keys of a record that a newer version wrote, as a JSON object; empty: no such keys. They are part of
// each copy of the record, so that an older leader that changes something else does not erase them.
type kept struct{ unknown string }

// Kept is the same for a record of another package. Encode and DecodeKept take the record as a struct, or a pointer to
// one, without methods.
type Kept struct{ kept }

// Encode adds what was kept to the JSON of a record.
func (k Kept) Encode(record any) ([]byte, error) { return encodeKept(record, k.kept) }

// DecodeKept reads a record, and gives what it has no field for.
func DecodeKept(data []byte, record any) (Kept, error) {
	k, err := decodeKept(data, record)
	return Kept{k}, err
}

// Known is the record without what this version does not know.
func (m Member) Known() Member {
	m.kept = kept{}
	return m
}

// encodeKept adds what was kept to the JSON of a record.
func encodeKept(record any, k kept) ([]byte, error) {
	b, err := json.Marshal(record)
	if err != nil || k.unknown == "" {
		return b, err
	}
	if len(b) == len("{}") {
		return []byte(k.unknown), nil
	}
	return append(append(b[:len(b)-1], ','), k.unknown[1:]...), nil
}

// decodeKept reads a record, a pointer to a struct without methods, and gives what it has no field for.
func decodeKept(data []byte, record any) (k kept, err error) {
	if err := json.Unmarshal(data, record); err != nil {
		return k, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return k, err
	}
	known := append(keysOf(reflect.TypeOf(record).Elem()), retired...)
	maps.DeleteFunc(all, func(key string, _ json.RawMessage) bool {
		// as encoding/json matches them
		return slices.ContainsFunc(known, func(have string) bool { return strings.EqualFold(have, key) })
	})
	if len(all) == 0 {
		return k, nil
	}
	b, err := json.Marshal(all)
	return kept{string(b)}, err
}

// keysOf lists the JSON keys of a struct, with those of the structs that are embedded in it.
func keysOf(t reflect.Type) (keys []string) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && f.Type.Kind() == reflect.Struct && f.Tag.Get("json") == "" {
			keys = append(keys, keysOf(f.Type)...)
		} else if key, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); key != "" && key != "-" {
			keys = append(keys, key)
		}
	}
	return keys
}

// retired are keys that older versions wrote for what this version no longer does: they are dropped.
var retired = []string{"upstream"} // of a learner: the member that sent it the log in place of the leader

// CheckFormat refuses a file that needs a newer format than the newest one that this version knows of it.
func CheckFormat(data []byte, newest uint64) error {
	if _, needs := ReadHead(data); needs > newest {
		return fmt.Errorf("format %d, this version knows %d: %w", needs, newest, ErrNewer)
	}
	return nil
}

// ReadHead gives the version of some settings and the format that they need, whatever form the rest has; 0: not told.
func ReadHead(data []byte) (version, needs uint64) {
	var head struct{ Version, Needs uint64 }
	if json.Unmarshal(data, &head) != nil {
		return 0, 0
	}
	return head.Version, head.Needs
}

// MarshalJSON implements json.Marshaler.
func (c Cluster) MarshalJSON() ([]byte, error) {
	type plain Cluster
	return encodeKept(plain(c), c.kept)
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Cluster) UnmarshalJSON(b []byte) (err error) {
	type plain Cluster
	c.kept, err = decodeKept(b, (*plain)(c))
	return err
}

// MarshalJSON implements json.Marshaler.
func (m Member) MarshalJSON() ([]byte, error) {
	type plain Member
	return encodeKept(plain(m), m.kept)
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Member) UnmarshalJSON(b []byte) (err error) {
	type plain Member
	m.kept, err = decodeKept(b, (*plain)(m))
	return err
}

// MarshalJSON implements json.Marshaler.
func (t JoinToken) MarshalJSON() ([]byte, error) {
	type plain JoinToken
	return encodeKept(plain(t), t.kept)
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *JoinToken) UnmarshalJSON(b []byte) (err error) {
	type plain JoinToken
	t.kept, err = decodeKept(b, (*plain)(t))
	return err
}

// MarshalJSON implements json.Marshaler.
func (t APIToken) MarshalJSON() ([]byte, error) {
	type plain APIToken
	return encodeKept(plain(t), t.kept)
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *APIToken) UnmarshalJSON(b []byte) (err error) {
	type plain APIToken
	t.kept, err = decodeKept(b, (*plain)(t))
	return err
}

// MarshalJSON implements json.Marshaler.
func (r Revocation) MarshalJSON() ([]byte, error) {
	type plain Revocation
	return encodeKept(plain(r), r.kept)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Revocation) UnmarshalJSON(b []byte) (err error) {
	type plain Revocation
	r.kept, err = decodeKept(b, (*plain)(r))
	return err
}

// MarshalJSON implements json.Marshaler.
func (c CAChange) MarshalJSON() ([]byte, error) {
	type plain CAChange
	return encodeKept(plain(c), c.kept)
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *CAChange) UnmarshalJSON(b []byte) (err error) {
	type plain CAChange
	c.kept, err = decodeKept(b, (*plain)(c))
	return err
}

// MarshalJSON implements json.Marshaler.
func (p Pause) MarshalJSON() ([]byte, error) {
	type plain Pause
	return encodeKept(plain(p), p.kept)
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Pause) UnmarshalJSON(b []byte) (err error) {
	type plain Pause
	p.kept, err = decodeKept(b, (*plain)(p))
	return err
}

// MarshalJSON implements json.Marshaler.
func (g Generation) MarshalJSON() ([]byte, error) {
	type plain Generation
	return encodeKept(plain(g), g.kept)
}

// UnmarshalJSON implements json.Unmarshaler.
func (g *Generation) UnmarshalJSON(b []byte) (err error) {
	type plain Generation
	g.kept, err = decodeKept(b, (*plain)(g))
	return err
}

// MarshalJSON implements json.Marshaler.
func (d Disbanded) MarshalJSON() ([]byte, error) {
	type plain Disbanded
	return encodeKept(plain(d), d.kept)
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Disbanded) UnmarshalJSON(b []byte) (err error) {
	type plain Disbanded
	d.kept, err = decodeKept(b, (*plain)(d))
	return err
}

// MarshalJSON implements json.Marshaler.
func (r Revision) MarshalJSON() ([]byte, error) {
	type plain Revision
	return encodeKept(plain(r), r.kept)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Revision) UnmarshalJSON(b []byte) (err error) {
	type plain Revision
	r.kept, err = decodeKept(b, (*plain)(r))
	return err
}

// MarshalJSON implements json.Marshaler.
func (s Secrets) MarshalJSON() ([]byte, error) {
	type plain Secrets
	return encodeKept(plain(s), s.kept)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Secrets) UnmarshalJSON(b []byte) (err error) {
	type plain Secrets
	s.kept, err = decodeKept(b, (*plain)(s))
	return err
}
