//go:build failpoints

package failpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// listen answers commands at a unix socket for as long as the process lives.
func listen(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lis, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("failpoints: %w", err)
	}
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	return nil
}

func answer(c net.Conn) {
	defer func() { _ = c.Close() }()
	for in := bufio.NewScanner(c); in.Scan(); {
		out, err := command(strings.Fields(in.Text()))
		if err != nil {
			out = "error: " + err.Error()
		}
		if _, err := fmt.Fprintln(c, out); err != nil {
			return
		}
	}
}

// command carries out one line.
func command(f []string) (string, error) {
	switch {
	case len(f) == 2 && f[0] == "arm":
		return "ok", arm(f[1])
	case len(f) == 1 && f[0] == "disarm":
		disarm()
		return "ok", nil
	case len(f) == 2 && f[0] == "release":
		if !release(f[1]) {
			return "", fmt.Errorf("nothing waits at %s", f[1])
		}
		return "ok", nil
	case len(f) == 2 && f[0] == "hits":
		return strconv.Itoa(hits(f[1])), nil
	case len(f) == 3 && f[0] == "clock" && f[1] == "jump":
		d, err := time.ParseDuration(f[2])
		if err != nil {
			return "", err
		}
		return "ok", changeClock(d, 0)
	case len(f) == 3 && f[0] == "clock" && f[1] == "rate":
		rate, err := strconv.ParseFloat(f[2], 64)
		if err != nil || rate < 0.1 || rate > 10 {
			return "", fmt.Errorf("%q is not a rate", f[2])
		}
		return "ok", changeClock(0, rate)
	}
	return "", fmt.Errorf("unknown command %q", strings.Join(f, " "))
}
