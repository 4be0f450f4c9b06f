package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Roles of a member.
const (
	RoleVoter   = "voter"   // mysqld and log, votes, can lead
	RoleLogger  = "logger"  // log only, votes, leads only as long as it takes to hand over
	RoleLearner = "learner" // mysqld and log, no vote
)

// DefaultWeight of a data node in elections; 0 means never lead.
const DefaultWeight = 100

// MaxWeight of a node.
const MaxWeight = 1000

// MaxMemberID is the highest raft id: an incarnation's server_uuid has 12 bits for it.
const MaxMemberID = 1<<12 - 1

// MaxMembers of one cluster.
const MaxMembers = 64

// Cluster is the settings that all nodes share. They are entries of the raft log; Version grows by one with each
// change, so a change made from an old copy is found out. Treat a Cluster in use as immutable: Clone, change, propose.
type Cluster struct {
	Version uint64 `json:"version"`
	// the format that a node has to know that goes by them; 0: the first (kept.go)
	Needs      uint64      `json:"needs,omitempty"`
	Name       string      `json:"cluster"`
	ClusterID  uint64      `json:"cluster_id"` // random, not 0; part of every server_uuid
	NextID     uint64      `json:"next_id"`    // raft id of the next node to join; ids are never used twice
	Members    []Member    `json:"members"`
	JoinTokens []JoinToken `json:"join_tokens,omitempty"`
	// DisabledEvents are the scheduled events, as "schema.name", that the leader holds disabled. A replica holds all of
	// them disabled, so a new leader would not know which ones to enable.
	DisabledEvents []string `json:"disabled_events,omitempty"`
	// Base is the GTID set, in MySQL's text form, that an adopted cluster began with: data that every data node has and
	// the log does not. It never changes. Empty in a cluster that began empty.
	Base         string `json:"base,omitempty"`
	APITokenHash string `json:"api_token_hash"` // of the operator's credential: pki.HashToken
	// APITokens are further ones, and ReadLogin says whether looking needs one (access.go).
	APITokens []APIToken `json:"api_tokens,omitempty"`
	ReadLogin bool       `json:"read_login,omitempty"`
	// RevokedCerts are not trusted, nor are those of nodes that are no members any more (WhyRevoked).
	RevokedCerts []Revocation `json:"revoked_certs,omitempty"`
	// CA is the SHA-256 of the certificate of the only CA that is trusted; empty: it was never changed. CAChange is a
	// change under way.
	CA       string    `json:"ca,omitempty"`
	CAChange *CAChange `json:"ca_change,omitempty"`
	// Rotate: a node, a certificate or a CA was shut out, and the password of trireme_clone that it knows must be
	// replaced. CloneHash is the pki.HashToken of the present password, which every server has that has applied the log
	// up to CloneAt; empty: it is still the first.
	Rotate    bool   `json:"rotate,omitempty"`
	CloneHash string `json:"clone_hash,omitempty"`
	CloneAt   uint64 `json:"clone_at,omitempty"`
	// FailbackMS is how long, in ms, a node with a higher weight than the leader's has been healthy before it gets
	// leadership. 0: DefaultFailback; below 0: never.
	FailbackMS int64  `json:"failback_ms,omitempty"`
	Pause      *Pause `json:"pause,omitempty"` // nil: automatic failover is on
	// CommitZones is in how many zones a commit is on disk before its client hears OK; below 2: no such rule.
	// CommitGraceMS is how long it waits for that or a must_ack member, in ms; 0: DefaultCommitGrace.
	CommitZones   int   `json:"commit_zones,omitempty"`
	CommitGraceMS int64 `json:"commit_grace_ms,omitempty"`
	// TransactionWarn and TransactionRefuse are sizes of a transaction, in bytes of binary log; 0: off. LagObjectiveMS
	// is in ms; 0: off.
	TransactionWarn   Bytes `json:"transaction_warn,omitempty"`
	TransactionRefuse Bytes `json:"transaction_refuse,omitempty"`
	LagObjectiveMS    int64 `json:"lag_objective_ms,omitempty"`
	// Voids are never taken back.
	Voids []Void `json:"voids,omitempty"`
	// Generation is the force-quorum that made this cluster out of the survivors of another one; nil: there was none.
	Generation *Generation `json:"generation,omitempty"`
	// Disbanded: `trireme leave` ended this cluster; its servers are plain ones. It is the last entry of the log.
	Disbanded *Disbanded `json:"disbanded,omitempty"`
	// Revisions are the last changes of what Settings lists, oldest first: Record adds them. They begin after version
	// RevisionsFrom.
	Revisions     []Revision `json:"revisions,omitempty"`
	RevisionsFrom uint64     `json:"revisions_from,omitempty"`

	kept
}

// Member is one node as the others know it. Addresses are host:port as others reach it.
type Member struct {
	ID        uint64 `json:"id"` // raft id
	Name      string `json:"name"`
	Role      string `json:"role"` // RoleVoter, RoleLogger, RoleLearner
	Peer      string `json:"peer"`
	API       string `json:"api"`
	MySQLHost string `json:"mysql_host,omitempty"` // empty for a logger
	MySQLPort int    `json:"mysql_port,omitempty"` // 0 for a logger
	RWPort    int    `json:"rw_port"`
	ROPort    int    `json:"ro_port"`
	Weight    int    `json:"weight"`
	// Pending: it was accepted and has not been heard of yet. Until then it takes no part in Raft, and nothing waits
	// for it.
	Pending bool `json:"pending,omitempty"`
	// ApplyDelayMS is how old a transaction is before this learner applies it, in ms; 0: no delay.
	ApplyDelayMS int64 `json:"apply_delay_ms,omitempty"`
	// Removing: it is on its way out. Its record goes once Raft's membership is without it.
	Removing bool `json:"removing,omitempty"`
	// Move, not 0, is the settings version of a change in which members were to give up votes for others to take: they
	// do so at once.
	Move uint64 `json:"move,omitempty"`
	// MustAck: a commit is on its disk before its client hears OK.
	MustAck bool   `json:"must_ack,omitempty"`
	Zone    string `json:"zone,omitempty"` // what fails together; empty: none

	kept
}

// Leaving: it is to have no vote.
func (m Member) Leaving() bool { return m.Removing || m.Role == RoleLearner }

// JoinToken is an invitation that was given out and whose node has not been heard of yet. The token itself is known to
// its holder only.
type JoinToken struct {
	ID      string    `json:"id"`
	Hash    string    `json:"hash"`           // pki.HashToken of the token's secret
	Name    string    `json:"name,omitempty"` // the node it is for; empty: any new name
	Role    string    `json:"role"`
	Expires time.Time `json:"expires"`
	// raft id given to its holder, who may ask again as long as that member is pending
	Used uint64 `json:"used,omitempty"`
	// SHA-256 of its holder's request for a certificate: of the first one that came with it
	CSR string `json:"csr,omitempty"`

	kept
}

// Disbanded says how a cluster ended.
type Disbanded struct {
	At     time.Time `json:"at"`
	Source string    `json:"source"` // the node whose server takes the writes; the others replicate from it

	kept
}

// Pause is an operator's wish that leadership stays where it is. It ends at Until by the clock of each node; a zero
// Until: when it is taken back.
type Pause struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`

	kept
}

// PausedAt reports whether automatic failover is paused at a time.
func (c *Cluster) PausedAt(t time.Time) bool {
	return c.Pause != nil && (c.Pause.Until.IsZero() || t.Before(c.Pause.Until))
}

// Member finds a member by name.
func (c *Cluster) Member(name string) (Member, bool) {
	for _, m := range c.Members {
		if m.Name == name {
			return m, true
		}
	}
	return Member{}, false
}

// MemberByID finds a member by raft id.
func (c *Cluster) MemberByID(id uint64) (Member, bool) {
	for _, m := range c.Members {
		if m.ID == id {
			return m, true
		}
	}
	return Member{}, false
}

// Names of all members in the order of the settings.
func (c *Cluster) Names() []string {
	names := make([]string, len(c.Members))
	for i, m := range c.Members {
		names[i] = m.Name
	}
	return names
}

// Clone gives a copy that shares nothing with c.
func (c *Cluster) Clone() *Cluster {
	d := *c
	d.Members = slices.Clone(c.Members)
	d.JoinTokens = slices.Clone(c.JoinTokens)
	d.APITokens = slices.Clone(c.APITokens)
	d.RevokedCerts = slices.Clone(c.RevokedCerts)
	d.DisabledEvents = slices.Clone(c.DisabledEvents)
	d.Revisions = slices.Clone(c.Revisions)
	d.Voids = slices.Clone(c.Voids)
	if c.CAChange != nil {
		ch := *c.CAChange
		d.CAChange = &ch
	}
	if c.Pause != nil {
		p := *c.Pause
		d.Pause = &p
	}
	if c.Disbanded != nil {
		e := *c.Disbanded
		d.Disbanded = &e
	}
	return &d
}

// Marshal gives the form kept in the raft log.
func (c *Cluster) Marshal() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return json.Marshal(c)
}

// ParseCluster reads what Marshal wrote. Keys of a newer version are kept. ErrNewer: this version must not go by them.
func ParseCluster(data []byte) (*Cluster, error) {
	if err := CheckFormat(data, SettingsFormat); err != nil {
		return nil, fmt.Errorf("cluster settings: %w", err)
	}
	c := new(Cluster)
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("cluster settings: %w", err)
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate says what is wrong with the settings, nil when nothing is.
func (c *Cluster) Validate() error {
	if err := CheckName("cluster", c.Name); err != nil {
		return err
	}
	if c.ClusterID == 0 {
		return fmt.Errorf("cluster settings: cluster_id is 0")
	}
	if n := len(c.Members); n == 0 || n > MaxMembers {
		return fmt.Errorf("cluster settings: %d members; there must be 1 to %d", n, MaxMembers)
	}
	used := map[string]string{} // kind and value -> who has it
	claim := func(kind, value, who string) error {
		if other, taken := used[kind+value]; taken {
			return fmt.Errorf("cluster settings: nodes %q and %q have the same %s %s", other, who, kind, value)
		}
		used[kind+value] = who
		return nil
	}
	for _, m := range c.Members {
		if err := m.Validate(); err != nil {
			return err
		}
		if m.ID >= c.NextID {
			return fmt.Errorf("cluster settings: node %q has id %d, but next_id is %d", m.Name, m.ID, c.NextID)
		}
		claims := [][2]string{{"id", fmt.Sprint(m.ID)}, {"name", m.Name}, {"peer address", m.Peer}, {"api address", m.API}}
		if m.Role != RoleLogger {
			claims = append(claims, [2]string{"mysql address", fmt.Sprintf("%s:%d", m.MySQLHost, m.MySQLPort)})
		}
		for _, cl := range claims {
			if err := claim(cl[0], cl[1], m.Name); err != nil {
				return err
			}
		}
	}
	if err := c.checkDelays(); err != nil {
		return fmt.Errorf("cluster settings: %w", err)
	}
	for _, t := range c.JoinTokens {
		if t.ID == "" || t.Hash == "" || !validRole(t.Role) {
			return fmt.Errorf("cluster settings: join token %q is incomplete", t.ID)
		}
	}
	return c.checkAccess()
}

// Validate checks one member's record.
func (m Member) Validate() error {
	if err := CheckName("node", m.Name); err != nil {
		return err
	}
	if m.ID == 0 || m.ID > MaxMemberID {
		return fmt.Errorf("node %q: id %d is not in 1..%d", m.Name, m.ID, MaxMemberID)
	}
	if !validRole(m.Role) {
		return fmt.Errorf("node %q: role %q is not one of voter, logger, learner", m.Name, m.Role)
	}
	for _, a := range [][2]string{{"peer", m.Peer}, {"api", m.API}} {
		if err := CheckAdvertise(a[1]); err != nil {
			return fmt.Errorf("node %q: %s: %w", m.Name, a[0], err)
		}
	}
	if m.Weight < 0 || m.Weight > MaxWeight {
		return fmt.Errorf("node %q: weight %d is not in 0..%d", m.Name, m.Weight, MaxWeight)
	}
	if m.Zone != "" {
		if err := CheckName("zone", m.Zone); err != nil {
			return fmt.Errorf("node %q: %w", m.Name, err)
		}
	}
	if m.Role == RoleLogger {
		if m.MySQLHost != "" || m.MySQLPort != 0 {
			return fmt.Errorf("node %q is a logger but has a mysqld address", m.Name)
		}
		return nil
	}
	if m.MySQLHost == "" || !validPort(m.MySQLPort) {
		return fmt.Errorf("node %q: mysqld address %q port %d is not usable", m.Name, m.MySQLHost, m.MySQLPort)
	}
	return nil
}

func validRole(role string) bool {
	return role == RoleVoter || role == RoleLogger || role == RoleLearner
}

func validPort(p int) bool { return p > 0 && p <= 65535 }
