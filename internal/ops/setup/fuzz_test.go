package setup

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// FuzzLoadCredential reads any file as an operator's credential.
func FuzzLoadCredential(f *testing.F) {
	f.Add([]byte(`{"cluster":"prod","token":"trt1.x","ca":"-----BEGIN","api":["db1:8008"]}`))
	f.Add([]byte("trt1.abc\n"))
	f.Add([]byte("two tokens"))
	dir := f.TempDir()
	path := filepath.Join(dir, "prod")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := LoadCredential(path)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Fatalf("it does not say which file: %v", err)
			}
			return
		}
		if _, err := Credentials(dir); err != nil {
			t.Fatal(err)
		}
		c.Cluster = "prod"
		if _, err := c.Save(dir); err != nil {
			t.Fatal(err)
		}
		if again, err := LoadCredential(path); err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%+v became %+v: %v", c, again, err)
		}
	})
}
