package rivals

import (
	"context"
	"fmt"

	"trireme/lab/disk"
	"trireme/lab/faultfs"
)

// DiskKind is what the directories of hosts stand on.
type DiskKind string

// The kinds. A Disk of DiskFault is a *faultfs.FS.
const (
	DiskPlain DiskKind = ""      // an ordinary directory
	DiskExt4  DiskKind = "ext4"  // lab/disk: an ext4 whose power can be cut
	DiskFault DiskKind = "fault" // lab/faultfs: loses all that it may lose, and fails on command
)

// diskSize of a host is room for the data set, redo and binary logs of a long run. Only what is written takes space.
const diskSize = 8 << 30

// Disk of a host. Its processes are killed before its power is cut.
type Disk interface {
	Dir() string
	Sync() error // makes everything on it durable
	PowerOff() error
	PowerOn() error
	Close() error
}

// newDisk for host number i of a shape; nil: an ordinary directory.
func (s Shape) newDisk(ctx context.Context, dir string, i int) (Disk, error) {
	switch s.Disks {
	case DiskPlain:
		return nil, nil
	case DiskExt4:
		d, err := disk.New(ctx, dir, diskSize)
		if err != nil {
			return nil, err
		}
		return d, nil
	case DiskFault:
		// The meanest disk that mysqld survives with O_DIRECT (lab/faultfs/doc.go).
		f, err := faultfs.New(ctx, dir, faultfs.Options{Seed: s.DiskSeed<<8 + uint64(i), Names: faultfs.Journaled, NoCache: true})
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	return nil, fmt.Errorf("no disks of kind %q", s.Disks)
}
