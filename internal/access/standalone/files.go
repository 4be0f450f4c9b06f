package standalone

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"trireme/internal/base/config"
	"trireme/internal/base/pki"
)

// ErrFiles is that of a router whose files cannot be used: another start would find the same ones.
var ErrFiles = errors.New("a file of this router cannot be used")

// files are what a router reads before it starts.
type files struct {
	trust *tls.Config // of the nodes
	own   *tls.Config // shown to clients
	token string
}

// readFiles reads them. Errors are ErrFiles.
func readFiles(cfg config.Standalone) (files, error) {
	var f files
	ca, err := os.ReadFile(cfg.CA)
	if errors.Is(err, fs.ErrNotExist) {
		return f, fmt.Errorf("%w: ca: %s does not exist; copy tls/ca.pem of any node there", ErrFiles, cfg.CA)
	}
	if err != nil {
		return f, fmt.Errorf("%w: ca: %w", ErrFiles, err)
	}
	if f.trust, err = pki.ClientTLS(ca); err != nil {
		return f, fmt.Errorf("%w: ca: %s: %w", ErrFiles, cfg.CA, err)
	}
	if f.own, err = certificate(cfg.TLSCert, cfg.TLSKey); err != nil {
		return f, fmt.Errorf("%w: %w", ErrFiles, err)
	}
	if f.token, err = tokenIn(cfg.Token); err != nil {
		return f, fmt.Errorf("%w: %w", ErrFiles, err)
	}
	return f, nil
}

// handedOver is where a service manager puts the files that it gives to services alone, while they run.
const handedOver = "/run/credentials/"

// serviceFile has the settings of trireme-router.service.
const serviceFile = "/etc/trireme/router.toml"

// CheckFiles reads what a router with these settings would read. It also says what trireme-router.service could not
// read, which runs as an account without a name, unless the settings themselves, in file, are elsewhere and closed to
// it: then they are of a router that is started in another way. What the service manager hands over is there only while
// the service runs, and not checked.
func CheckFiles(file string, cfg config.Standalone) error {
	if err := openToAll(file); err == nil || file == serviceFile {
		for _, name := range []string{file, cfg.CA, cfg.TLSCert, cfg.TLSKey, cfg.Token} {
			if name == "" || strings.HasPrefix(name, handedOver) {
				continue
			}
			if err := openToAll(name); err != nil {
				return fmt.Errorf("%w: %w", ErrFiles, err)
			}
		}
	}
	if strings.HasPrefix(cfg.TLSCert, handedOver) || strings.HasPrefix(cfg.TLSKey, handedOver) {
		cfg.TLSCert, cfg.TLSKey = "", ""
	}
	if strings.HasPrefix(cfg.Token, handedOver) {
		cfg.Token = ""
	}
	if strings.HasPrefix(cfg.CA, handedOver) {
		return nil // docs/ops/router.md does not ask for it: it is no secret
	}
	_, err := readFiles(cfg)
	return err
}

// openToAll refuses what root reads and an ordinary account does not. Of a checker that is an ordinary account itself
// its own right counts: reading the file tells.
func openToAll(name string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	st, err := os.Stat(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // told by who reads it
	}
	if err != nil {
		return err
	}
	if st.Mode().Perm()&0o004 == 0 {
		return fmt.Errorf("%s has mode %04o: trireme-router.service, which is not root, cannot read it. For a file that is no secret: chmod o+r %s; "+
			"for a key or a token: LoadCredential= (docs/ops/router.md)", abs, st.Mode().Perm(), abs)
	}
	for dir := filepath.Dir(abs); ; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err != nil {
			return err
		} else if st.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("%s has mode %04o: trireme-router.service, which is not root, cannot reach %s; put the file below /etc/trireme, or chmod o+x %s",
				dir, st.Mode().Perm(), abs, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
