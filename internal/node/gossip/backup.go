package gossip

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/api"
)

// NoteBackup answers what a backup tells of itself. A copy becomes an event of the history, which all nodes keep. How
// far the log is archived changes all the time: it goes from node to node with their status, and the backup tells it
// again after a restart.
func (g *Gossip) NoteBackup(record func(api.Event),
	event func(kind string, index uint64, message string) api.Event) func(context.Context,
	api.BackupReport) (api.BackupResult, error) {
	return func(_ context.Context, r api.BackupReport) (res api.BackupResult, err error) {
		if err := r.Check(g.clock.Wall()); err != nil {
			return res, err
		}
		if r.Copy != nil {
			e := event(api.EventBackup, 0, r.Copy.Text())
			e.Backup = r.Copy
			record(e)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.archive = newerArchive(g.archive, r.Archive)
		return api.BackupResult{Noted: true}, nil
	}
}

// Archive is how far the log is archived, the newest that this node was told or has heard of; nil: it knows of none.
func (g *Gossip) Archive() *api.BackupArchive {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.Peers() {
		g.archive = newerArchive(g.archive, p.Archive) // a peer may go
	}
	return g.archive
}

func newerArchive(a, b *api.BackupArchive) *api.BackupArchive {
	if a == nil || b != nil && b.Complete.After(a.Complete) {
		return b
	}
	return a
}

// Backup is what is known of the cluster's backup, by the history and by what nodes tell; nil: nothing.
func (g *Gossip) Backup(history []api.Event) *api.BackupView {
	return api.BackupOf(history, g.Archive(), g.clock.Wall())
}

// BackupAge is the metric.
var BackupAge = prometheus.NewDesc("trireme_backup_age_seconds",
	"Age of the newest copy that a backup has made, and of the archive of the log, as trireme backup told.",
	[]string{"part"}, nil)

// CollectBackup gives no series for what is not known: that has no age.
func CollectBackup(v *api.BackupView, out chan<- prometheus.Metric) {
	if v != nil && v.Copy != nil {
		out <- prometheus.MustNewConstMetric(BackupAge, prometheus.GaugeValue, v.CopyAgeS, "copy")
	}
	if v != nil && v.Archive != nil {
		out <- prometheus.MustNewConstMetric(BackupAge, prometheus.GaugeValue, v.ArchiveAgeS, "archive")
	}
}
