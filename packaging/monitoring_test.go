package packaging

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func readString(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func matches(text, pattern string) map[string]bool {
	out := map[string]bool{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		out[m[1]] = true
	}
	return out
}

// grafanaQueries are the expressions of the dashboard's panels, with values for its variables.
func grafanaQueries(t *testing.T) (out []string) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readString(t, "monitoring/grafana.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, q := range p.Targets {
			out = append(out, strings.NewReplacer("$cluster", "shop", "$__rate_interval", "1m").Replace(q.Expr))
		}
	}
	return out
}

// TestMonitoringAsksForWhatThereIs: alert rules and dashboard use only metrics that a node has.
func TestMonitoringAsksForWhatThereIs(t *testing.T) {
	there := matches(readString(t, "../docs/metrics.md"), "(?m)^\\| `(\\w+)")
	used := matches(readString(t, "monitoring/alerts.yml")+strings.Join(grafanaQueries(t), "\n"),
		`\b(trireme_\w+?)(?:_bucket|_sum|_count)?\b`)
	for name := range used {
		if !there[name] {
			t.Errorf("docs/metrics.md has no %s", name)
		}
	}
	if len(used) < 15 {
		t.Errorf("only %d metrics are used: %v", len(used), slices.Sorted(maps.Keys(used)))
	}
}

// TestAlertsHaveRunbooks: docs/ops/alerts.md has a section for each alert, which the alert names, and for no other.
func TestAlertsHaveRunbooks(t *testing.T) {
	rules := readString(t, "monitoring/alerts.yml")
	alerts := matches(rules, `alert: (\w+)`)
	if sections := matches(readString(t, "../docs/ops/alerts.md"), `(?m)^## (Trireme\w+)$`); !maps.Equal(alerts, sections) {
		t.Errorf("alerts %v\nsections %v", slices.Sorted(maps.Keys(alerts)), slices.Sorted(maps.Keys(sections)))
	}
	for name := range alerts {
		if !strings.Contains(rules, "docs/ops/alerts.md#"+strings.ToLower(name)+"\n") {
			t.Errorf("%s names no runbook", name)
		}
	}
}

// TestAlerts: Prometheus takes the rules and the dashboard's queries, and each alert fires when it should
// (monitoring/alerts_test.yml).
func TestAlerts(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if name := os.Getenv("PROMTOOL"); name != "" {
		promtool, err = name, nil
	}
	if err != nil {
		t.Skip("there is no promtool: PROMTOOL=$(scripts/promtool.sh) fetches it")
	}
	var queries strings.Builder
	queries.WriteString("groups:\n  - name: grafana\n    rules:\n")
	for i, q := range grafanaQueries(t) {
		fmt.Fprintf(&queries, "      - record: query_%d\n        expr: '%s'\n", i, strings.ReplaceAll(q, "'", "''"))
	}
	grafana := filepath.Join(t.TempDir(), "queries.yml")
	if err := os.WriteFile(grafana, []byte(queries.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "monitoring/alerts.yml", grafana},
		{"test", "rules", "monitoring/alerts_test.yml"}} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
