package faultfs

import (
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"trireme/lab/child"
)

const (
	mountTag = "trireme-faultfs"
	socketFD = 3

	busyLimit = 10 * time.Second // for processes that were killed to be gone
	maxWrite  = 256 << 10
)

// Server is the process that serves one file system.
var Server = child.Role{Name: mountTag, Run: func([]string) error { return serve() }}

// serve until the creator is gone.
func serve() error {
	file := os.NewFile(socketFD, "creator")
	conn, err := net.FileConn(file)
	if err != nil {
		return err
	}
	file.Close()
	s := &server{}
	r := rpc.NewServer()
	if err := r.RegisterName(mountTag, s); err != nil {
		return err
	}
	r.ServeConn(conn)
	if s.fuse != nil {
		_ = unix.Unmount(s.dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	return nil
}

// server is what the creator calls, one call at a time.
type server struct {
	dir   string
	world *world
	fuse  *fuse.Server // nil: not mounted
}

// Nothing is an argument or an answer that says nothing; gob wants a field. Exported for net/rpc.
type Nothing struct{ Unused bool }

// MountArgs is a new file system. Exported for net/rpc.
type MountArgs struct {
	Dir     string
	Options Options
}

// Mount makes the file system.
func (s *server) Mount(a MountArgs, _ *Nothing) error {
	s.dir, s.world = a.Dir, newWorld(a.Options, a.Dir+backingSuffix)
	return s.mount()
}

func (s *server) mount() (err error) {
	s.fuse, err = fuse.NewServer(s.world, s.dir, &fuse.MountOptions{
		AllowOther: true, Options: []string{"default_permissions"}, DirectMountStrict: true, FsName: mountTag, Name: mountTag,
		MaxWrite: maxWrite, MaxBackground: 64, DisableXAttrs: true, DisableReadDirPlus: true, ExplicitDataCacheControl: true,
	})
	if err != nil {
		return fmt.Errorf("mounting on %s: %w", s.dir, err)
	}
	go s.fuse.Serve()
	return s.fuse.WaitMount()
}

// PowerOff at once.
func (s *server) PowerOff(_ Nothing, loss *Loss) (err error) {
	*loss, err = s.world.powerOff()
	return err
}

// PowerOn by a new mount: the kernel knows the old one by its caches.
func (s *server) PowerOn(_ Nothing, _ *Nothing) error {
	if s.fuse != nil {
		if err := s.unmount(); err != nil {
			return err
		}
	}
	s.world.powerOn()
	return s.mount()
}

// unmount waits for processes that are ending.
func (s *server) unmount() error {
	for deadline := time.Now().Add(busyLimit); ; {
		err := unix.Unmount(s.dir, unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil, errors.Is(err, unix.EINVAL): // EINVAL: nothing is mounted there
			s.fuse.Wait()
			s.fuse = nil
			return nil
		case !errors.Is(err, unix.EBUSY):
			return fmt.Errorf("unmounting %s: %w", s.dir, err)
		case time.Now().After(deadline):
			return fmt.Errorf("unmounting %s: %w", s.dir, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Sync makes everything durable.
func (s *server) Sync(_ Nothing, _ *Nothing) error {
	s.world.syncAll()
	return nil
}

// Inject faults in place of those before.
func (s *server) Inject(list []Fault, _ *Nothing) error {
	s.world.faults.set(list)
	return nil
}

// Hits of the faults.
func (s *server) Hits(_ Nothing, out *[]int) error {
	*out = s.world.faults.hits()
	return nil
}

// Counts so far.
func (s *server) Counts(_ Nothing, out *Counts) error {
	*out = s.world.faults.copyCounts()
	return nil
}
