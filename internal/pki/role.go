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

// May says whether the role is the asked one or has it. The empty role may nothing.
func (r Role) May(asked Role) bool {
	has, needs := slices.Index(Roles, r), slices.Index(Roles, asked)
	return needs >= 0 && has >= needs
}

// RoleOf reads name and role from a verified certificate of a person or a program (SignClient): the role is its subject's organizational unit.
// ErrForeign if it is none.
func RoleOf(cert *x509.Certificate) (name string, role Role, err error) {
	s := cert.Subject
	if len(cert.URIs) != 0 || len(s.OrganizationalUnit) != 1 || s.CommonName == "" {
		return "", "", fmt.Errorf("%w: %q has no role", ErrForeign, s.CommonName)
	}
	if role, err = ParseRole(s.OrganizationalUnit[0]); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return s.CommonName, role, nil
}

// SerialOf is a certificate's serial number as it is shown, and revoked by: lower-case hexadecimal.
func SerialOf(cert *x509.Certificate) string { return fmt.Sprintf("%x", cert.SerialNumber) }

// CheckClientName refuses names of tokens and clients that could be taken for something else in a log.
func CheckClientName(name string) error {
	if len(name) > 63 || !isHostName(name) || strings.EqualFold(name, "operator") {
		return fmt.Errorf("name %q: use 1 to 63 letters, digits, '-', '_' or '.'; \"operator\" is the credential of `trireme init`", name)
	}
	return nil
}
