package dashboard

import (
	"os"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
)

// TestBackupOld: the tile stands out, and `trireme status` has a line, exactly when the shipped alerts would fire.
func TestBackupOld(t *testing.T) {
	rules, err := os.ReadFile("../../../packaging/monitoring/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[time.Duration]string{maxCopyAge: `{part="copy"}) > 8 * 86400`,
		maxArchiveAge: `{part="archive"}) > 15 * 60`} {
		if !strings.Contains(string(rules), want) {
			t.Errorf("alerts.yml has another limit than %v: no %s", limit, want)
		}
	}
	copied, archived := &api.BackupCopy{}, &api.BackupArchive{}
	for _, c := range []struct {
		b    *api.BackupView
		want string
	}{
		{nil, ""},
		{&api.BackupView{Copy: copied, CopyAgeS: 8 * 86400, Archive: archived, ArchiveAgeS: 15 * 60}, ""},
		{&api.BackupView{Copy: copied, CopyAgeS: 8*86400 + 1, Archive: archived, ArchiveAgeS: 15 * 60},
			"the newest copy is 8 d old (TriremeBackupOld)"},
		{&api.BackupView{Copy: copied, CopyAgeS: 86400, Archive: archived, ArchiveAgeS: 15*60 + 1},
			"the log is archived up to 15 min ago (TriremeArchiveOld)"},
		{&api.BackupView{Archive: archived, ArchiveAgeS: 3600},
			"the log is archived up to 60 min ago (TriremeArchiveOld)"},
		{&api.BackupView{Copy: copied, CopyAgeS: 20 * 86400},
			"the newest copy is 20 d old (TriremeBackupOld)"},
	} {
		got := strings.Join(BackupProblems(c.b), "; ")
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.b, got, c.want)
		}
		if level := backupTile(api.ClusterView{Backup: c.b}).Level; (level == levelWarn) != (c.want != "") {
			t.Errorf("%+v: the tile is %q", c.b, level)
		}
	}
}

// TestBackupTile: ages of what is known, and plain words where nothing is.
func TestBackupTile(t *testing.T) {
	copied := &api.BackupCopy{Place: "/b", Donor: "n2", StoredBytes: 3 << 30}
	for want, b := range map[string]*api.BackupView{
		"none  no backup is known": nil,
		"26 h ago copy of n2 in /b, 3.0 GiB\nlog archived up to 12 s ago": {Copy: copied, CopyAgeS: 26.5 * 3600,
			Archive: &api.BackupArchive{}, ArchiveAgeS: 12.4},
		"none  no copy is known\nlog archived up to 3 d ago": {Archive: &api.BackupArchive{},
			ArchiveAgeS: 3.1 * 86400},
		"5 min ago no archive of the log is known": {Copy: &api.BackupCopy{}, CopyAgeS: 301},
	} {
		x := backupTile(api.ClusterView{Backup: b})
		if got := x.Value + " " + x.Unit + " " + x.Note; got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// TestRestorable: the moments that can be restored go from the newest copy to the end of the archive of the same
// backup, in whole seconds; if that is not known for sure, it shows no seconds.
func TestRestorable(t *testing.T) {
	made, complete := noon.Add(-time.Hour+time.Millisecond), noon.Add(999*time.Millisecond)
	of := func(copied, archived string, made, complete time.Time) *api.BackupView {
		return &api.BackupView{Copy: &api.BackupCopy{Place: copied, Made: made},
			Archive: &api.BackupArchive{Place: archived, Complete: complete}}
	}
	const text = "can be restored:\n2026-11-22 11:00:01Z to\n2026-11-22 12:00:00Z"
	note := backupTile(api.ClusterView{Backup: of("/b", "/b", made, complete)}).Note
	if !strings.HasSuffix(note, "\n"+text) {
		t.Errorf("%q, want %s", note, text)
	}
	for name, b := range map[string]*api.BackupView{
		"two backups":           of("/b", "s3://b/c", made, complete),
		"no place is told":      of("", "", made, complete),
		"no time of the copy":   of("/b", "/b", time.Time{}, complete),
		"no end of the archive": of("/b", "/b", made, time.Time{}),
		"archive before copy":   of("/b", "/b", complete, made),
		"within one second":     of("/b", "/b", noon.Add(time.Millisecond), noon.Add(2*time.Millisecond)),
		"no archive":            {Copy: of("/b", "/b", made, complete).Copy},
		"no copy":               {Archive: of("/b", "/b", made, complete).Archive},
	} {
		if note := backupTile(api.ClusterView{Backup: b}).Note; strings.Contains(note, "restored") {
			t.Errorf("%s: %q", name, note)
		}
	}
}
