package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"trireme/internal/mysqld"
)

const portFloor = 22000 // free ports are looked for from here

// environment is what systems are started with.
type environment struct {
	mysqld   string
	version  string
	binary   string
	template string
	nextPort int
}

func newEnvironment(ctx context.Context, hint, binary, dir string) (*environment, error) {
	bin, err := mysqld.Find(ctx, hint)
	if err != nil {
		return nil, err
	}
	return &environment{mysqld: bin.Path, version: bin.Version.String(), binary: binary, template: filepath.Join(dir, "template"), nextPort: portFloor}, nil
}

// takePorts finds n consecutive free ports that were not given out before.
func (e *environment) takePorts(n int) int {
	for base := e.nextPort; base+n < 32000; base++ {
		busy := -1
		for p := base; p < base+n; p++ {
			l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(p))
			if err != nil {
				busy = p
				break
			}
			l.Close()
		}
		if busy < 0 {
			e.nextPort = base + n
			return base
		}
		base = busy
	}
	e.nextPort = portFloor // all were given out: begin again, the first ones are free by now
	return portFloor
}

func (e *environment) startServer(ctx context.Context, dir string, id int, options map[string]string) (*server, error) {
	if _, err := os.Stat(e.template); err != nil {
		if err := makeTemplate(ctx, e.mysqld, e.template); err != nil {
			return nil, err
		}
	}
	return startServer(ctx, e.mysqld, e.template, dir, e.takePorts(1), id, options)
}

// removeUnlessFailed removes the scratch directory, or says where it is: the logs in it tell why a run failed.
func removeUnlessFailed(dir string, err error, say io.Writer) {
	if err == nil {
		os.RemoveAll(dir)
		return
	}
	fmt.Fprintf(say, "the servers' and daemons' logs are in %s\n", dir)
}

func writeReports(dir, name string, v any, markdown string, say io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	base := filepath.Join(dir, name)
	if err := os.WriteFile(base+".json", append(b, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(base+".md", []byte(markdown), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(say, "\n%s\nWritten to %s.json and %s.md\n", markdown, base, base)
	return err
}

// poll until ok, an error that lasts, or the limit.
func poll(ctx context.Context, limit time.Duration, what string, f func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, err := f(ctx)
		if err == nil && ok {
			return nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = ctx.Err()
			}
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
