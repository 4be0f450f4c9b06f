package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/lab/heap"
)

// FuzzParseCluster reads any settings entry: what is taken passes its own checks again, and changing one setting by its
// rules leaves settings that do too.
func FuzzParseCluster(f *testing.F) {
	f.Add(golden(f, "cluster.json"), "failback_after", "60s")
	f.Add(golden(f, "cluster.json"), "weight.db1", "0")
	f.Add(golden(f, "cluster.json"), "apply_delay.db3", "1h")
	f.Add([]byte(`{"cluster":"c","cluster_id":1,"next_id":1,"members":[{}]}`), "", "")
	f.Fuzz(func(t *testing.T, b []byte, key, value string) {
		heap.Within(t, 64<<10+4096*len(b), func() {
			c, err := ParseCluster(b)
			if err != nil {
				if !strings.HasPrefix(err.Error(), "cluster settings: ") && !strings.Contains(err.Error(), `"`) {
					t.Fatalf("unclear: %v", err)
				}
				return
			}
			out, err := c.Marshal()
			if err != nil {
				return // a year after 9999
			}
			again, err := ParseCluster(out)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := again.Marshal(); err != nil || !bytes.Equal(b, out) {
				t.Fatalf("%s became %s: %v", out, b, err)
			}
			if err := again.Set(key, value); err == nil {
				if err := again.Validate(); err != nil {
					t.Fatalf("%s = %q leaves settings that are refused: %v", key, value, err)
				}
			}
		})
	})
}

// FuzzParseSettings reads any text of an operator's editor: what is taken, shown again, is read as the same.
func FuzzParseSettings(f *testing.F) {
	f.Add("failback_after = \"60s\"\nweight.db1 = 7\n")
	f.Add("[weight]\ndb1 = 1\n[zone]\ndb1 = \"a\"\n")
	f.Add("commit_zones = 2\nmust_ack.db1 = true\napply_delay.db3 = \"1h\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		heap.Within(t, 256<<10+8192*len(text), func() {
			got, err := ParseSettings(text)
			if err != nil {
				return
			}
			var list []Setting
			for k, v := range got {
				list = append(list, Setting{Key: k, Value: v})
			}
			again, err := ParseSettings(RenderSettings(list))
			if err != nil || !maps.Equal(got, again) {
				t.Fatalf("%v became %v: %v", got, again, err)
			}
		})
	})
}

// FuzzUnits reads sizes and times.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"64MiB", "0B", "1h30m", "10s", "-1s", "9223372036854775807B", "17179869184GiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		heap.Within(t, 64*len(s), func() {
			if b, err := ParseBytes(s); err == nil {
				if again, err := ParseBytes(b.String()); err != nil || again != b || b < 0 {
					t.Fatalf("%q: %d, then %d, %v", s, b, again, err)
				}
			}
			if d, err := ParseDuration(s); err == nil {
				if again, err := ParseDuration(d.String()); err != nil || again != d {
					t.Fatalf("%q: %v, then %v, %v", s, d, again, err)
				}
			}
		})
	})
}

// FuzzNodeFiles starts from any identity.json and secrets.json.
func FuzzNodeFiles(f *testing.F) {
	f.Add(golden(f, "identity.json"))
	f.Add(golden(f, "secrets.json"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range []string{IdentityName, SecretsName} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		id, err := LoadIdentity(dir)
		if err == nil {
			if err := id.Save(dir); err != nil {
				t.Fatal(err)
			}
			if again, err := LoadIdentity(dir); err != nil || again != id {
				t.Fatalf("%+v became %+v: %v", id, again, err)
			}
		} else if !strings.Contains(err.Error(), IdentityName) {
			t.Fatalf("unclear: %v", err)
		}
		s, err := LoadSecrets(dir)
		if err != nil {
			if !strings.Contains(err.Error(), "secrets") {
				t.Fatalf("unclear: %v", err)
			}
			return
		}
		out, err := json.Marshal(s)
		var again Secrets
		if err != nil || json.Unmarshal(out, &again) != nil || again != s {
			t.Fatalf("secrets became others: %v", err)
		}
	})
}
