package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"trireme/internal/base/config"
	"trireme/internal/base/poll"
)

// lease is a lock in a bucket: an object below lock/ that its holder writes again and again. No clocks are compared.
// Who finds one watches it, and takes it over when it has not changed for s3Times.stale; its holder writes nothing when
// it could not renew it for s3Times.valid. A holder that was stopped in between and goes on after that, within one
// request, is what this does not exclude: If-None-Match keeps it from replacing anything.
type lease struct {
	s     *S3
	name  string // of the object
	token string

	mu      sync.Mutex
	etag    string
	renewed time.Time // when the last renewal that was carried out began
	n       int
	lost    error // somebody else has it

	stop context.CancelFunc
	done chan struct{}
}

// leaseBody is what the object holds, for people and to know one's own.
type leaseBody struct {
	Holder string `json:"holder"`
	Token  string `json:"token"`
	Number int    `json:"number"`
}

// sight is a lease of another process, which has not changed for age while it was watched. A long pause of the
// watcher's own adds little to that: it may have been the holder's, too.
type sight struct {
	etag string
	last time.Time
	age  time.Duration
}

func (a sight) seen(etag string, stale time.Duration) sight {
	now := time.Now()
	if a.etag != etag {
		return sight{etag: etag, last: now}
	}
	return sight{etag, now, a.age + min(now.Sub(a.last), stale/4)}
}

const (
	leasePrefix  = "lock/"
	readerPrefix = leasePrefix + "reader-"
	removerLease = leasePrefix + "remover.json"
)

// leaseOf a part of the backup.
func leaseOf(part string) string { return leasePrefix + part + ".json" }

// Lock implements Place. It waits for the lease of a process that was killed to become stale.
func (s *S3) Lock(part string) (io.Closer, error) {
	l, err := s.take(leaseOf(part), true)
	if err != nil {
		return nil, err
	}
	s.dropUploads(part)
	return l, nil
}

// dropUploads removes parts of objects that were never completed. A service that does not let us leaves them, unseen.
func (s *S3) dropUploads(part string) {
	ctx, cancel := s.limited()
	defer cancel()
	for o := range s.api.ListIncompleteUploads(ctx, s.bucket, s.prefix+part+"/", true) {
		if o.Err != nil {
			return
		}
		_ = s.api.AbortMultipartUpload(ctx, s.bucket, o.Key, o.UploadID)
	}
}

// mayWrite is ErrLocked when the lease for an object's part was lost, and ErrStore when that is not known.
func (s *S3) mayWrite(name string) error {
	part, _, _ := strings.Cut(name, "/")
	s.mu.Lock()
	l := s.leases[leaseOf(part)]
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return l.lost
	}
	if since := time.Since(l.renewed); since > s.time.valid {
		return fmt.Errorf("%w: the lock %s could not be renewed for %v, so nothing is written", ErrStore, l.name,
			since.Round(time.Second))
	}
	return nil
}

// take takes a lease. With wait, one that is not renewed is watched until it is stale.
func (s *S3) take(name string, wait bool) (*lease, error) {
	host, _ := os.Hostname()
	l := &lease{s: s, name: name, token: config.NewToken(), done: make(chan struct{})}
	for {
		err := l.put(host, true, "")
		if err == nil {
			break
		}
		if !refused(err) {
			return nil, s.explain("lock "+name, err)
		}
		free, err := s.watch(name, wait)
		if err != nil {
			return nil, err
		}
		if free == "" { // it is gone
			continue
		}
		if err = l.put(host, false, free); err == nil {
			break
		}
		if !refused(err) && minio.ToErrorResponse(err).Code != "NoSuchKey" {
			return nil, s.explain("lock "+name, err)
		}
	}
	if err := l.probe(host); err != nil {
		return nil, s.explain("lock "+name, err)
	}
	s.mu.Lock()
	s.leases[name] = l
	s.mu.Unlock()
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.WithoutCancel(s.ctx))
	go l.keep(ctx, host)
	return l, nil
}

// put writes the lease's object if it is not there (fresh), or if it is what it was (etag). refused(err): it is not so.
func (l *lease) put(host string, fresh bool, etag string) error {
	s := l.s
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.time.valid)
	defer cancel()
	body, err := l.body(host)
	if err != nil {
		return err
	}
	var opts minio.PutObjectOptions
	if fresh || !s.conditional() { // the first answer does not tell whether the service heeds conditions
		if err := l.unchanged(ctx, fresh, etag); err != nil {
			return err
		}
	}
	switch {
	case !s.conditional():
	case fresh:
		opts.SetMatchETagExcept("*")
	default:
		opts.SetMatchETag(etag)
	}
	began := time.Now()
	info, err := s.putBytes(ctx, s.prefix+l.name, body, opts)
	if s.conditional() && unknownCondition(err) {
		s.unconditional()
		return l.put(host, fresh, etag)
	}
	if refused(err) { // by an answer of ours that was lost?
		if have, tag, gerr := s.leaseAt(ctx, l.name); gerr == nil && have.Token == l.token {
			info.ETag, err = tag, nil
		}
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.etag, l.renewed = info.ETag, began
	return nil
}

// body is never twice the same: its ETag tells that it was renewed.
func (l *lease) body(host string) ([]byte, error) {
	l.n++
	return json.Marshal(leaseBody{fmt.Sprintf("%s, process %d", host, os.Getpid()), l.token, l.n})
}

// unchanged does what a condition would, but for a moment in between.
func (l *lease) unchanged(ctx context.Context, fresh bool, etag string) error {
	_, tag, err := l.s.leaseAt(ctx, l.name)
	gone := minio.ToErrorResponse(err).Code == "NoSuchKey"
	switch {
	case err != nil && !gone:
		return err
	case fresh && gone, !fresh && tag == etag && !gone:
		return nil
	}
	return minio.ErrorResponse{StatusCode: http.StatusPreconditionFailed, Code: "PreconditionFailed"}
}

// probe finds out whether the service heeds conditions: what is there cannot be put as if it were not.
func (l *lease) probe(host string) error {
	if !l.s.conditional() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.s.ctx), l.s.time.valid)
	defer cancel()
	var opts minio.PutObjectOptions
	opts.SetMatchETagExcept("*")
	body, err := l.body(host)
	if err != nil {
		return err
	}
	info, err := l.s.putBytes(ctx, l.s.prefix+l.name, body, opts)
	if refused(err) {
		return nil
	}
	if err != nil {
		return err
	}
	l.etag = info.ETag
	l.s.unconditional()
	return nil
}

func (s *S3) unconditional() {
	s.mu.Lock()
	known := s.plain
	s.plain = true
	s.mu.Unlock()
	if !known {
		s.say(
			"%s does not know conditional requests (If-None-Match): that two processes never write to %s at once is up to you",
			s.api.EndpointURL(), s)
	}
}

func (s *S3) leaseAt(ctx context.Context, name string) (b leaseBody, etag string, err error) {
	r, info, _, err := s.api.GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return b, "", err
	}
	defer func() { _ = r.Close() }()
	text, err := io.ReadAll(io.LimitReader(r, 1<<12))
	if err == nil {
		_ = json.Unmarshal(text, &b) // a lease that says nothing is somebody's all the same
	}
	return b, info.ETag, err
}

// watch looks at another one's lease. It gives the ETag of one that has no holder, and "" for one that is gone. With
// wait it takes the time that this needs, else it goes by what it has seen before. The error is ErrLocked.
func (s *S3) watch(name string, wait bool) (etag string, err error) {
	for told := false; ; {
		ctx, cancel := s.limited()
		b, tag, err := s.leaseAt(ctx, name)
		cancel()
		if minio.ToErrorResponse(err).Code == "NoSuchKey" {
			return "", nil
		}
		if err != nil {
			return "", s.explain("lock "+name, err)
		}
		s.mu.Lock()
		was := s.seen[name]
		is := was.seen(tag, s.time.stale)
		s.seen[name] = is
		s.mu.Unlock()
		switch {
		case is.age > s.time.stale:
			return tag, nil
		case !wait, told && was.etag != tag:
			return "", fmt.Errorf("%w: %s is held by %s", ErrLocked, s, b.Holder)
		case !told:
			s.say("%s is locked by %s; if that is dead, the lock is free in %v", s, b.Holder, s.time.stale)
			told = true
		}
		if poll.Pause(s.ctx, s.time.renew/2) != nil {
			return "", s.ctx.Err()
		}
	}
}

// keep renews the lease until ctx ends, or it is lost.
func (l *lease) keep(ctx context.Context, host string) {
	defer close(l.done)
	for {
		if poll.Pause(ctx, l.s.time.renew) != nil {
			return
		}
		l.mu.Lock()
		etag := l.etag
		l.mu.Unlock()
		err := l.put(host, false, etag)
		if !refused(err) && minio.ToErrorResponse(err).Code != "NoSuchKey" {
			continue // renewed, or the service does not answer: mayWrite knows since when
		}
		l.mu.Lock()
		l.lost = fmt.Errorf("%w: another process has taken the lock %s of %s over, or removed it", ErrLocked, l.name, l.s)
		l.mu.Unlock()
		return
	}
}

// Close gives the lease back.
func (l *lease) Close() error {
	l.stop()
	<-l.done
	l.s.mu.Lock()
	delete(l.s.leases, l.name)
	l.s.mu.Unlock()
	if l.lost != nil || time.Since(l.renewed) > l.s.time.valid {
		return nil // it may be somebody else's
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.s.ctx), l.s.time.valid)
	defer cancel()
	if err := l.s.api.RemoveObject(ctx, l.s.bucket, l.s.prefix+l.name, minio.RemoveObjectOptions{}); err != nil {
		return l.s.explain("unlock "+l.name, err)
	}
	return nil
}

// hold implements holder. Who reads leaves a lease and then looks for who removes; who removes does it the other way
// round: one of them sees the other.
func (s *S3) hold(exclusive bool) (io.Closer, error) {
	if exclusive {
		return s.holdAlone()
	}
	l, err := s.take(readerPrefix+config.NewToken()+".json", false)
	if errors.Is(err, ErrDenied) {
		return io.NopCloser(nil), nil // a backup that these credentials may only read
	}
	if err != nil {
		return nil, err
	}
	for {
		_, err := s.watch(removerLease, false)
		if err == nil { // no process removes anything, or the one that did is dead
			return l, nil
		}
		if !errors.Is(err, ErrLocked) {
			return nil, errors.Join(err, l.Close())
		}
		if poll.Pause(s.ctx, s.time.renew/2) != nil {
			return nil, errors.Join(s.ctx.Err(), l.Close())
		}
	}
}

func (s *S3) holdAlone() (io.Closer, error) {
	l, err := s.take(removerLease, false)
	if err != nil {
		return nil, err
	}
	names, err := s.List(readerPrefix)
	for _, name := range names {
		if err != nil {
			break
		}
		if _, err = s.watch(name, false); err == nil { // the process that left it is dead
			err = s.Remove(name)
		}
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
