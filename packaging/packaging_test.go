// Package packaging checks what is shipped with the program. scripts/package-test.sh installs it.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"trireme/internal/api"
)

// stub stands for a program in the entry point's PATH: it notes how it was called, and what it was told on standard
// input.
const stub = `#!/bin/sh
echo "${0##*/} $*" >>"$NOTES"
case "${0##*/} $1" in
  "trireme add") echo '{'; echo '  "token": "trj1.x"'; echo '}' ;;
  "trireme init") mkdir -p "$XDG_CONFIG_HOME/trireme" "${TRIREME_CONFIG%/*}" && echo secret >"$XDG_CONFIG_HOME/trireme/shop" && touch "${TRIREME_CONFIG%/*}/identity.json" ;;
  "trireme join") echo "stdin $(cat)" >>"$NOTES" ;;
  curl*) echo "stdin $(cat)" >>"$NOTES" ;;
esac
`

// start runs the entry point of one container, and gives what it called.
func start(t *testing.T, dir, name string, env ...string) string {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"trireme", "curl"} {
		if err := os.WriteFile(filepath.Join(bin, program), []byte(stub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	notes := filepath.Join(dir, name+".notes")
	_ = os.Remove(notes)
	cmd := exec.Command("bash", "docker/entrypoint.sh")
	volume := filepath.Join(dir, name)
	cmd.Env = append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "NOTES=" + notes, "TRIREME_CLUSTER=shop",
		"TRIREME_FIRST=db-0", "TRIREME_NAME=" + name,
		"XDG_CONFIG_HOME=" + filepath.Join(volume, "operator"), "TRIREME_CONFIG=" + filepath.Join(volume, "node",
			"trireme.toml"),
		"TRIREME_OPERATOR=" + filepath.Join(dir, "shared")}, env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	b, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestEntrypoint: the first container makes the cluster and leaves the credential for the others, which join; later
// starts only run the daemon.
func TestEntrypoint(t *testing.T) {
	dir := t.TempDir()
	has := func(got string, want ...string) {
		t.Helper()
		at := 0
		for _, w := range want {
			i := strings.Index(got[at:], w)
			if i < 0 {
				t.Fatalf("no %q in order in:\n%s", w, got)
			}
			at += i
		}
	}
	has(start(t, dir, "db-0"), "trireme init --cluster shop --name db-0 --host db-0", "trireme node")
	if b, err := os.ReadFile(filepath.Join(dir, "shared")); err != nil || string(b) != "secret\n" {
		t.Errorf("the others find %q, %v", b, err)
	}
	has(start(t, dir, "db-1", "TRIREME_ROLE=logger", "TRIREME_HOST=db-1.db"),
		"trireme add db-1 --role logger --cluster shop --json",
		"trireme join --name db-1 --role logger --host db-1.db", "stdin trj1.x", "trireme node")
	if i, err := os.Stat(filepath.Join(dir, "db-1", "operator", "trireme", "shop")); err != nil || i.Mode().
		Perm() != 0o600 {
		t.Errorf("the operator's credential: %v, %v", i, err)
	}
	if got := start(t, dir, "db-0"); got != "trireme node\n" {
		t.Errorf("a second start: %s", got)
	}
	// Its volume is lost, the cluster is not.
	if err := os.RemoveAll(filepath.Join(dir, "db-0")); err != nil {
		t.Fatal(err)
	}
	got := start(t, dir, "db-0")
	has(got, "trireme add db-0", "trireme join")
	if strings.Contains(got, "trireme init") {
		t.Errorf("a second cluster was made:\n%s", got)
	}
}

// TestCredentialIsNoArgument: what goes into a Secret is seen by no other process.
func TestCredentialIsNoArgument(t *testing.T) {
	// The account of a pod is at a fixed place; without it the request cannot be made, and the daemon is not started.
	if _, err := os.Stat("/var/run/secrets/kubernetes.io"); err == nil {
		t.Skip("this is a pod")
	}
	text, err := os.ReadFile("docker/entrypoint.sh")
	if err != nil {
		t.Fatal(err)
	}
	account := t.TempDir()
	for name, content := range map[string]string{"token": "account-token", "namespace": "shop", "ca.crt": ""} {
		if err := os.WriteFile(filepath.Join(account, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	moved := filepath.Join(dir, "docker")
	if err := os.MkdirAll(moved, 0o755); err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.ReplaceAll(string(text), "/var/run/secrets/kubernetes.io/serviceaccount", account))
	if err := os.WriteFile(filepath.Join(moved, "entrypoint.sh"), text, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	got := start(t, dir, "db-0", "TRIREME_SECRET=db-operator", "KUBERNETES_SERVICE_HOST=10.0.0.1",
		"KUBERNETES_SERVICE_PORT=443")
	if !strings.Contains(got, "https://10.0.0.1:443/api/v1/namespaces/shop/secrets/db-operator") ||
		!strings.Contains(got, `stdin {"data":{"credential":"c2VjcmV0Cg=="}}`) {
		t.Errorf("the Secret is not written:\n%s", got)
	}
	if strings.Contains(got, "account-token") {
		t.Errorf("the account's token is an argument:\n%s", got)
	}
}

// TestUnitsLeaveFinalEndsAlone: what ends with the exit code of a mistake that another start would find again is not
// restarted. Everything else is, 2 included: it means a mistake on the command line, and is also what Go's runtime ends
// a program with that panics.
func TestUnitsLeaveFinalEndsAlone(t *testing.T) {
	for _, unit := range []string{"trireme.service", "trireme-router.service"} {
		b, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^RestartPreventExitStatus=(.*)$`).FindStringSubmatch(string(b))
		if m == nil {
			t.Errorf("%s restarts whatever ended", unit)
			continue
		}
		left := strings.Fields(m[1])
		for _, k := range api.Kinds {
			if never := k.Kind == api.KindFinal; slices.Contains(left, strconv.Itoa(k.Exit)) != never {
				t.Errorf("%s leaves %q alone, and %q ends with %d", unit, left, k.Kind, k.Exit)
			}
		}
	}
}

// TestUnitsRunVerbs: what the units run is in the command line's own page.
func TestUnitsRunVerbs(t *testing.T) {
	page, err := os.ReadFile("../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	units, err := filepath.Glob("*.service")
	if err != nil || len(units) == 0 {
		t.Fatal(units, err)
	}
	line := regexp.MustCompile(`(?m)^Exec\w+=-?/usr/bin/(trireme [a-z ]+)$`)
	for _, u := range units {
		b, err := os.ReadFile(u)
		if err != nil {
			t.Fatal(err)
		}
		found := line.FindAllStringSubmatch(string(b), -1)
		if len(found) == 0 {
			t.Errorf("%s runs nothing", u)
		}
		for _, m := range found {
			if !strings.Contains(string(page), "\n### "+m[1]+"\n") {
				t.Errorf("%s: there is no `%s`", u, m[1])
			}
		}
	}
}

// TestSampleUnits: what the samples run is in the command line's own page, systemd understands them, and the page on
// backups names each.
func TestSampleUnits(t *testing.T) {
	page, err := os.ReadFile("../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../docs/ops/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	samples, err := filepath.Glob("examples/*")
	if err != nil || len(samples) != 3 {
		t.Fatal(samples, err)
	}
	line := regexp.MustCompile(`(?m)^Exec\w+=/usr/bin/(trireme backup [a-z]+)(.*)$`)
	flag := regexp.MustCompile(` (--[a-z-]+)`)
	dir := t.TempDir()
	var copies []string
	for _, sample := range samples {
		b, err := os.ReadFile(sample)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(sample)
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/ops/backup.md does not name %s", name)
		}
		found := line.FindAllStringSubmatch(string(b), -1)
		if (len(found) == 0) != (filepath.Ext(name) == ".timer") {
			t.Errorf("%s runs %d verbs", name, len(found))
		}
		for _, m := range found {
			_, section, ok := strings.Cut(string(page), "\n### "+m[1]+"\n")
			section, _, _ = strings.Cut(section, "\n### ")
			if !ok {
				t.Errorf("%s: there is no `%s`", name, m[1])
			}
			for _, f := range flag.FindAllStringSubmatch(m[2], -1) {
				if !strings.Contains(section, "`"+f[1]+"`") && !strings.Contains(section, "`"+f[1]+"=") {
					t.Errorf("%s: %s has no %s", name, m[1], f[1])
				}
			}
		}
		copies = append(copies, filepath.Join(dir, name))
		if err := os.WriteFile(copies[len(copies)-1], []byte(strings.ReplaceAll(string(b), "/usr/bin/trireme", "/bin/true")),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: it has not read the samples")
	}
	if out, err := exec.Command(analyze, append([]string{"verify", "--man=no"}, copies...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}
