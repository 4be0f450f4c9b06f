package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/api"
	"trireme/internal/node/gossip"
)

// TestBackupIsKnown: the newest copy and the newest archive that any node was told of are shown, the copy also after a
// restart and when an older daemon has passed it on.
func TestBackupIsKnown(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	startTestRaft(t, n, nil)
	view := func() *api.BackupView { return n.gossip.Backup(n.history.All()) }
	note := n.gossip.NoteBackup(n.history.Add, n.history.Event)
	if v := view(); v != nil {
		t.Fatalf("before any: %+v", v)
	}
	at := time.Now().Add(-time.Hour)
	told := func(r api.BackupReport) {
		t.Helper()
		if res, err := note(t.Context(), r); err != nil || !res.Noted {
			t.Fatalf("%+v: %v", res, err)
		}
	}
	archive := func(place string, at time.Time) *api.BackupArchive {
		return &api.BackupArchive{Place: place, Index: 7, Complete: at}
	}
	told(api.BackupReport{Copy: &api.BackupCopy{Name: "c2", Place: "/b", Donor: "n2", Made: at, Bytes: 3 << 20,
		StoredBytes: 1 << 20}})
	told(api.BackupReport{Copy: &api.BackupCopy{Name: "c1", Place: "/old", Made: at.Add(-time.Hour)}})
	told(api.BackupReport{Archive: archive("/b", at.Add(time.Minute))})
	told(api.BackupReport{Archive: archive("/late", at)})
	v := view()
	if v.Copy.Name != "c2" || v.CopyAgeS < 3600 || v.CopyAgeS > 3700 || v.Archive.Place != "/b" || v.ArchiveAgeS < 3500 ||
		v.ArchiveAgeS > 3600 {
		t.Errorf("%+v %+v %+v", v, v.Copy, v.Archive)
	}
	// it may be down
	n.gossip.Peers()[2] =
		&gossip.Peer{Status: gossip.Status{Known: gossip.Known{Archive: archive("/c", at.Add(2*time.Minute))}}}
	view()
	delete(n.gossip.Peers(), 2)
	if v := view(); v.Archive.Place != "/c" {
		t.Errorf("of a peer that has gone: %+v", v.Archive)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	n.history.Keep(stopped)
	again := newTestNode(t, func(d *testDir) { d.cfg.Dir = n.cfg.Dir }).history
	if c := api.BackupOf(again.All(), nil, at).Copy; c == nil || c.Name != "c2" || c.Bytes != 3<<20 {
		t.Errorf("after a restart: %+v", c)
	}
	n.history.Add(api.Event{Kind: api.EventBackup, Time: at.Add(time.Minute)})
	if c := view().Copy; !c.Made.Equal(at.Add(time.Minute)) {
		t.Errorf("passed on by an older daemon: %+v", c)
	}
	for name, r := range map[string]api.BackupReport{
		"of tomorrow": {Archive: archive("/b", time.Now().Add(24*time.Hour))},
		"of never":    {Copy: &api.BackupCopy{Name: "c3"}},
		"long":        {Archive: archive(strings.Repeat("x", 5000), at)},
	} {
		if _, err := note(t.Context(), r); api.KindOf(err) != api.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBackupMetrics: without a backup there is no series, and an age is not told as 0.
func TestBackupMetrics(t *testing.T) {
	v := api.ClusterView{}
	series := func() int {
		out := make(chan prometheus.Metric, 9)
		gossip.CollectBackup(v.Backup, out)
		return len(out)
	}
	if n := series(); n != 0 {
		t.Errorf("%d series of no backup", n)
	}
	v.Backup = &api.BackupView{Archive: &api.BackupArchive{}}
	if n := series(); n != 1 {
		t.Errorf("%d series of an archive", n)
	}
}
