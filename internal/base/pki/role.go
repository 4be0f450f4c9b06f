package pki

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
)

// Role is what somebody may ask the HTTP API for. Each has all that those before it have.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // sees everything but secrets, changes nothing
	Operator Role = "operator" // what one on call needs: nothing of it loses data, a vote or a secret
	Admin    Role = "admin"    // everything
)

// Roles, the least first.
var Roles = []Role{Viewer, Operator, Admin}

// ParseRole reads the name of a role.
func ParseRole(name string) (Role, error) {
	if r := Role(name); slices.Contains(Roles, r) {
		return r, nil
	}
	return "", fmt.Errorf("%q is no role; there are viewer, operator and admin", name)
}

// May reports whether the role is the asked one or has it. The empty role may nothing.
func (r Role) May(asked Role) bool {
	has, needs := slices.Index(Roles, r), slices.Index(Roles, asked)
	return needs >= 0 && has >= needs
}

// SerialOf is a certificate's serial number as it is shown, and revoked by: lower-case hexadecimal.
func SerialOf(cert *x509.Certificate) string { return fmt.Sprintf("%x", cert.SerialNumber) }

// CheckTokenName refuses names of tokens that could be taken for something else in a log.
func CheckTokenName(name string) error {
	if len(name) > 63 || !isHostName(name) || strings.EqualFold(name, "operator") {
		return fmt.Errorf(
			"name %q: use 1 to 63 letters, digits, '-', '_' or '.'; \"operator\" is the credential of `trireme init`", name)
	}
	return nil
}
