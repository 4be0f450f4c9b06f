package demo

import (
	"strings"
	"testing"

	"trireme/internal/base/config"
	"trireme/internal/mysql/mysqld"
)

// TestRecipe: a template is found again although its passwords are random, and not after a change of what shapes it.
func TestRecipe(t *testing.T) {
	of := func(version string) string {
		template := Template{binary: mysqld.Binary{Path: "/mysqld", Version: mysqld.Version{Raw: version}},
			secrets: config.NewSecrets()}
		return template.recipe()
	}
	recipe := of("9.7.1")
	if recipe != of("9.7.1") {
		t.Errorf("it changes from one time to the next: %s", recipe)
	}
	if recipe == of("9.7.1-1") {
		t.Error("another version has the same")
	}
	for _, part := range []string{"--initialize-insecure", "GRANT ALL", "'trireme_clone'@'%'", "trireme_feed"} {
		if !strings.Contains(recipe, part) {
			t.Errorf("no %s in %s", part, recipe)
		}
	}
}
