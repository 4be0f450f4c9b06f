package rivals

import (
	"context"

	"trireme/lab/faultfs"
)

// newDisk for host number i of a shape; nil: an ordinary directory. It is the meanest disk that mysqld survives with
// O_DIRECT (lab/faultfs/doc.go). A host's processes are killed before its power is cut.
func (s Shape) newDisk(ctx context.Context, dir string, i int) (*faultfs.FS, error) {
	if !s.Disks {
		return nil, nil
	}
	return faultfs.New(ctx, dir, faultfs.Options{Seed: s.DiskSeed<<8 + uint64(i), Names: faultfs.Journaled, NoCache: true})
}
