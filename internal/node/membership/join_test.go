package membership

import (
	"strings"
	"testing"

	"trireme/internal/base/config"
)

// TestCheckBrought: data joins only if it is exactly what the cluster began with.
func TestCheckBrought(t *testing.T) {
	const base = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-100"
	for _, tt := range []struct{ base, executed, role, why string }{
		{base, base, config.RoleVoter, ""},
		{"", "", config.RoleVoter, ""},
		{base, base[:len(base)-1], config.RoleVoter,
			"lacks transactions that the cluster began with: aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:11-100"},
		{base, "", config.RoleLearner, "lacks transactions"},
		{base, base + ":103,bbbbbbbb-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1", config.RoleVoter,
			"did not begin with: aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:103,\nbbbbbbbb-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1"},
		{"", base, config.RoleVoter, "did not begin with"},
		{base, base, config.RoleLogger, "a logger, which has no data"},
		{base, "nonsense", config.RoleVoter, "gtid_executed of n2"},
	} {
		err := checkBrought(&config.Cluster{Base: tt.base}, config.Member{Name: "n2", Role: tt.role}, &tt.executed)
		if tt.why == "" && err != nil || tt.why != "" && (err == nil || !strings.Contains(err.Error(), tt.why)) {
			t.Errorf("base %q, executed %q, role %s: %v, want %q", tt.base, tt.executed, tt.role, err, tt.why)
		}
	}
	if err := checkBrought(&config.Cluster{Base: base}, config.Member{Name: "n2", Role: config.RoleVoter}, nil); err != nil {
		t.Errorf("a node without data: %v", err)
	}
}
