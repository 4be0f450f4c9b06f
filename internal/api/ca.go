package api

import "time"

// Steps of a CARequest.
const (
	CABegin  = "begin"  // make another CA and have all nodes trust both
	CAFinish = "finish" // have all nodes go over to it, and then trust it alone
	CAAbort  = "abort"  // take the beginning back
)

// CARequest changes the cluster's CA.
type CARequest struct {
	Step string `json:"step"`
}

// CAView is what GET /ca answers. CAs are named by the SHA-256 of their certificates, in hexadecimal.
type CAView struct {
	Certs  string     `json:"certs"`           // PEM of what the asked node trusts: for clients
	Signer string     `json:"signer"`          // of its certificate
	Trusts []string   `json:"trusts"`          //
	Next   string     `json:"next,omitempty"`  // the CA to be, while a change is under way
	Finish bool       `json:"finish"`          // nodes go over to it
	Since  *time.Time `json:"since,omitempty"` // when the change began
	Nodes  []CANode   `json:"nodes"`
	// Rotating: trireme_clone gets another password, which a node, certificate or CA that was shut out does not learn;
	// not every member has it yet.
	Rotating bool `json:"rotating,omitempty"`
}

// CANode is a member in it.
type CANode struct {
	Name   string   `json:"name"`
	Up     bool     `json:"up"`
	Signer string   `json:"signer"`
	Trusts []string `json:"trusts"`
}

// Trusting reports whether all nodes trust a CA.
func (v CAView) Trusting(ca string) bool {
	for _, n := range v.Nodes {
		found := false
		for _, t := range n.Trusts {
			found = found || t == ca
		}
		if !found {
			return false
		}
	}
	return true
}
