package backup

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"trireme/internal/base/config"
)

// S3Options say where a bucket is and who asks.
type S3Options struct {
	URL       string // s3://bucket, or s3://bucket/prefix
	Endpoint  string // URL of the service; "": that of AWS
	Region    string // "": us-east-1
	PathStyle bool   // the bucket is part of the path, not of the host name
	CAFile    string // certificates to trust instead of the system's; "": the system's
	// Credentials is a file as aws has it, mode 0600; "": AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, then
	// ~/.aws/credentials.
	Credentials string
	Say         func(format string, args ...any) // told what the service cannot do
}

// S3Scheme begins the name of a place that is a bucket.
const S3Scheme = "s3://"

// S3 is a Place in a bucket of an S3-compatible service, which must be strongly consistent.
//
// An object appears when the request that ends it is carried out, whole or not at all: one PUT, or the last request of
// an upload in parts. Objects that are written once are put with If-None-Match, so that a writer that was thought dead
// replaces nothing. Locks are leases (lease).
type S3 struct {
	sealing
	api    *minio.Core
	ctx    context.Context // of the command: a Store's methods have none
	bucket string
	prefix string // "", or ends in a slash
	writer string // names this process in what it writes
	say    func(format string, args ...any)
	time   s3Times

	mu     sync.Mutex
	leases map[string]*lease // by name, those that this process has
	seen   map[string]sight  // leases of others
	plain  bool              // the service does not know conditional requests
}

// s3Times are limits; tests have shorter ones.
type s3Times struct {
	request time.Duration // of one request, repetitions included
	idle    time.Duration // without a byte while an object is read
	renew   time.Duration // pause between two renewals of a lease
	valid   time.Duration // a lease that was not renewed for so long carries no write
	stale   time.Duration // a lease of another process that is not renewed for so long has no holder; more than valid
}

var defaultS3Times = s3Times{request: 2 * time.Minute, idle: 30 * time.Second, renew: 5 * time.Second,
	valid: 15 * time.Second, stale: 25 * time.Second}

const (
	s3Retries = 4        // of a request, by the client
	partBytes = 16 << 20 // of a part of an upload; larger ones follow (partSize)
	partsEach = 2000
	writerKey = "Trireme-Writer" // user metadata
)

// OpenS3 looks at nothing yet. ctx ends all requests.
func OpenS3(ctx context.Context, o S3Options) (*S3, error) {
	bucket, prefix, err := splitS3(o.URL)
	if err != nil {
		return nil, err
	}
	endpoint, err := endpointOf(o)
	if err != nil {
		return nil, err
	}
	creds, err := o.credentials()
	if err != nil {
		return nil, err
	}
	transport, err := minio.DefaultTransport(endpoint.Scheme == "https")
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	transport.ResponseHeaderTimeout = defaultS3Times.request / 2
	if o.CAFile != "" {
		if transport.TLSClientConfig, err = trustFile(o.CAFile); err != nil {
			return nil, err
		}
	}
	lookup := minio.BucketLookupAuto
	if o.PathStyle {
		lookup = minio.BucketLookupPath
	}
	region := o.Region
	if region == "" {
		region = "us-east-1"
	}
	api, err := minio.NewCore(endpoint.Host, &minio.Options{Creds: creds, Secure: endpoint.Scheme == "https",
		Transport: calm{transport}, Region: region,
		BucketLookup: lookup, MaxRetries: s3Retries})
	if err != nil {
		return nil, fmt.Errorf("backup: %s: %w", o.URL, err)
	}
	s := &S3{api: api, ctx: ctx, bucket: bucket, prefix: prefix, writer: config.NewToken(), say: o.Say,
		time: defaultS3Times, leases: map[string]*lease{},
		seen: map[string]sight{}}
	if s.say == nil {
		s.say = func(string, ...any) {}
	}
	return s, nil
}

// splitS3 reads s3://bucket/prefix.
func splitS3(text string) (bucket, prefix string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "s3" || u.RawQuery != "" || u.Fragment != "" || u.Port() != "" {
		return "", "", fmt.Errorf("%w: %q is not s3://bucket/prefix", ErrNone, text)
	}
	if u.User != nil {
		return "",
			"",
			fmt.Errorf("%w: credentials do not belong into s3://bucket/prefix, where other users see them: they come from the environment or a file", ErrDenied)
	}
	if u.Host == "" {
		return "", "", fmt.Errorf("%w: %q names no bucket: s3://bucket/prefix", ErrNone, text)
	}
	prefix = strings.Trim(u.Path, "/")
	if prefix != "" && path.Clean(prefix) != prefix {
		return "", "", fmt.Errorf("%w: the prefix of %q is no plain path", ErrNone, text)
	}
	if prefix != "" {
		prefix += "/"
	}
	return u.Host, prefix, nil
}

func endpointOf(o S3Options) (*url.URL, error) {
	text := o.Endpoint
	if text == "" {
		text = "https://s3.amazonaws.com"
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "" ||
		u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("backup: the endpoint %q is not https://HOST or https://HOST:PORT", o.Endpoint)
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" &&
		(ip == nil || !ip.IsLoopback()) {
		return nil,
			fmt.Errorf("backup: the endpoint %q is without TLS and not on this host: all data would cross the network in the clear; use https://", o.Endpoint)
	}
	return u, nil
}

// credentials are looked for in one place after the other, and the first that is there counts.
func (o *S3Options) credentials() (*credentials.Credentials, error) {
	id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	file := o.Credentials
	switch {
	case file != "":
	case id != "" && secret != "":
		return credentials.NewStaticV4(id, secret, os.Getenv("AWS_SESSION_TOKEN")), nil
	case id != "" || secret != "":
		return nil, fmt.Errorf("%w: one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set, and not the other", ErrDenied)
	default:
		home, err := os.UserHomeDir()
		if err == nil {
			file = filepath.Join(home, ".aws", "credentials")
			_, err = os.Stat(file)
		}
		if err != nil {
			return nil,
				fmt.Errorf(
					"%w: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a file with --s3-credentials",
					ErrDenied)
		}
	}
	st, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDenied, err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s can be read by others (mode %04o): chmod 600, and think about who has it", ErrDenied,
			file, st.Mode().Perm())
	}
	c := credentials.NewFileAWSCredentials(file, "")
	if v, err := c.GetWithContext(nil); err != nil || v.AccessKeyID == "" || v.SecretAccessKey == "" {
		return nil,
			errors.Join(
				fmt.Errorf("%w: %s holds no aws_access_key_id and aws_secret_access_key of the profile (AWS_PROFILE, or default)",
					ErrDenied, file), err)
	}
	return c, nil
}

func trustFile(name string) (*tls.Config, error) {
	pem, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("backup: %s holds no certificate", name)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

func (s *S3) String() string { return S3Scheme + s.bucket + "/" + strings.TrimSuffix(s.prefix, "/") }

// limited is the context of one request.
func (s *S3) limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, s.time.request)
}

// replaced are the objects that are not written once.
func replaced(name string) bool { return name == reachedName || name == prunedName }

// Put implements Store.
func (s *S3) Put(name string, fill func(io.Writer) error) error {
	u := &upload{s: s, name: name, opts: s.putOptions(name)}
	err := s.write(name, u, fill)
	if err == nil {
		err = u.end()
	}
	if err == nil {
		return nil
	}
	u.abort()
	if u.err == nil { // it is not the service that failed
		return fmt.Errorf("backup: write %s: %w", name, err)
	}
	return s.explain("write "+name, err)
}

func (s *S3) putOptions(name string) minio.PutObjectOptions {
	o := minio.PutObjectOptions{UserMetadata: map[string]string{writerKey: s.writer}}
	if !replaced(name) && s.conditional() {
		o.SetMatchETagExcept("*")
	}
	return o
}

func (s *S3) conditional() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.plain
}

// upload is an object on its way. It is gathered up to a part; if more comes it is sent in parts.
type upload struct {
	s     *S3
	name  string
	opts  minio.PutObjectOptions
	buf   bytes.Buffer
	id    string // of the upload in parts; "": none
	parts []minio.CompletePart
	err   error // of the service
}

// partSize grows with the object, whose length is not known before: the service counts no more than 10,000 parts.
func partSize(n int) int { return partBytes << (n / partsEach) }

func (u *upload) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		room := partSize(len(u.parts)) - u.buf.Len()
		if room == 0 { // more follows
			if u.err = u.part(); u.err != nil {
				return done, u.err
			}
			continue
		}
		n := min(room, len(p)-done)
		u.buf.Write(p[done : done+n])
		done += n
	}
	return done, nil
}

// part sends what is gathered. The service checks it by its checksums.
func (u *upload) part() (err error) {
	ctx, cancel := u.s.limited()
	defer cancel()
	if u.id == "" {
		if u.id, err = u.s.api.NewMultipartUpload(ctx, u.s.bucket, u.s.prefix+u.name,
			minio.PutObjectOptions{UserMetadata: u.opts.UserMetadata}); err != nil {
			return err
		}
	}
	b := u.buf.Bytes()
	md, sha := sums(b)
	n := len(u.parts) + 1
	p, err := u.s.api.PutObjectPart(ctx, u.s.bucket, u.s.prefix+u.name, u.id, n, bytes.NewReader(b), int64(len(b)),
		minio.PutObjectPartOptions{Md5Base64: md, Sha256Hex: sha, DisableContentSha256: true})
	if err != nil {
		return err
	}
	u.parts = append(u.parts, minio.CompletePart{PartNumber: n, ETag: p.ETag})
	u.buf.Reset()
	return nil
}

func sums(b []byte) (md5Base64, sha256Hex string) {
	m, h := md5.Sum(b), sha256.Sum256(b)
	return base64.StdEncoding.EncodeToString(m[:]), hex.EncodeToString(h[:])
}

// end makes the object appear.
func (u *upload) end() error {
	u.err = u.finish()
	return u.err
}

func (u *upload) finish() error {
	if u.id != "" {
		if err := u.part(); err != nil {
			return err
		}
	}
	if err := u.s.mayWrite(u.name); err != nil {
		return err
	}
	err := u.commit()
	if unknownCondition(err) && u.s.conditional() {
		u.s.unconditional()
		u.opts = u.s.putOptions(u.name)
		err = u.commit()
	}
	if refused(err) {
		// It is there: by an answer that was lost, or by somebody else.
		if mine, serr := u.s.ours(u.name); serr != nil {
			return serr
		} else if mine {
			return nil
		}
		return fmt.Errorf("%w: %s is there already: another process writes to %s", ErrLocked, u.name, u.s)
	}
	return err
}

func (u *upload) commit() error {
	ctx, cancel := u.s.limited()
	defer cancel()
	key := u.s.prefix + u.name
	if u.id != "" {
		_, err := u.s.api.CompleteMultipartUpload(ctx, u.s.bucket, key, u.id, u.parts, u.opts)
		if err == nil {
			u.id = ""
		}
		return err
	}
	_, err := u.s.putBytes(ctx, key, u.buf.Bytes(), u.opts)
	return err
}

// putBytes is one PUT. Its body is signed as a whole, which every service knows.
func (s *S3) putBytes(ctx context.Context, key string, b []byte, opts minio.PutObjectOptions) (minio.UploadInfo,
	error) {
	md, sha := sums(b)
	opts.DisableContentSha256 = true // chunk by chunk
	return s.api.PutObject(ctx, s.bucket, key, bytes.NewReader(b), int64(len(b)), md, sha, opts)
}

// ours reports whether an object was written by this process.
func (s *S3) ours(name string) (bool, error) {
	ctx, cancel := s.limited()
	defer cancel()
	st, err := s.api.StatObject(ctx, s.bucket, s.prefix+name, minio.StatObjectOptions{})
	if err != nil {
		return false, err
	}
	return st.UserMetadata[writerKey] == s.writer, nil
}

// abort gives up parts, which are invisible and take room. Those that are left the next one with the lock removes.
func (u *upload) abort() {
	if u.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.s.ctx), u.s.time.idle)
	defer cancel()
	_ = u.s.api.AbortMultipartUpload(ctx, u.s.bucket, u.s.prefix+u.name, u.id)
}

// List implements Store.
func (s *S3) List(prefix string) ([]string, error) {
	ctx, cancel := s.limited()
	defer cancel()
	var names []string
	for o := range s.api.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + prefix,
		Recursive: true}) {
		if o.Err != nil {
			return nil, s.explain("list "+prefix, o.Err)
		}
		if name := strings.TrimPrefix(o.Key, s.prefix); !strings.HasSuffix(name, "/") { // folders that a browser has made
			names = append(names, name)
		}
	}
	if err := ctx.Err(); err != nil { // what was listed may not be all
		return nil, s.explain("list "+prefix, err)
	}
	slices.Sort(names)
	return names, nil
}

// Remove implements Store.
func (s *S3) Remove(name string) error {
	ctx, cancel := s.limited()
	defer cancel()
	if err := s.api.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{}); err != nil &&
		minio.ToErrorResponse(err).Code != "NoSuchKey" {
		return s.explain("remove "+name, err)
	}
	return nil
}

// vacant is ErrNotOurs when there is anything but locks.
func (s *S3) vacant() error {
	names, err := s.List("")
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, leasePrefix) {
			return fmt.Errorf("%w: %s holds %s: name a prefix below which nothing is", ErrNotOurs, s, name)
		}
	}
	return nil
}

// refused reports whether a conditional request was refused for its condition.
func refused(err error) bool {
	r := minio.ToErrorResponse(err)
	return r.StatusCode == http.StatusPreconditionFailed || r.Code == "PreconditionFailed" ||
		r.Code == "ConditionalRequestConflict"
}

// unknownCondition reports whether a request was refused because it had a condition.
func unknownCondition(err error) bool {
	r := minio.ToErrorResponse(err)
	return r.StatusCode == http.StatusNotImplemented || r.Code == "NotImplemented"
}

// explain says what an answer of the service means and what to do.
func (s *S3) explain(doing string, err error) error {
	for _, known := range []error{ErrLocked, ErrStore, ErrDenied, ErrMissing, ErrNoSpace, ErrCorrupt} {
		if errors.Is(err, known) {
			return err
		}
	}
	var r minio.ErrorResponse
	var unknown x509.UnknownAuthorityError
	at := s.api.EndpointURL()
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: %s: this host does not trust the certificate of %s: give its CA with --s3-ca: %v", ErrStore,
			doing, at, err)
	case !errors.As(err, &r):
		return fmt.Errorf("%w: %s in %s: no answer from %s: %v", ErrStore, doing, s, at, err)
	}
	switch {
	case r.Code == "NoSuchBucket":
		return fmt.Errorf("%w: %s has no bucket %q: make it, or correct the name", ErrNone, at, s.bucket)
	case r.Code == "NoSuchKey":
		return fmt.Errorf("%w: %s in %s", ErrMissing, strings.TrimPrefix(doing, "read "), s)
	case slices.Contains([]string{"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken",
		"RequestTimeTooSkewed"}, r.Code):
		return fmt.Errorf("%w: %s does not accept the credentials or this host's clock (%s: %s)", ErrDenied, at, r.Code,
			r.Message)
	case r.Code == "AuthorizationHeaderMalformed" || r.StatusCode == http.StatusMovedPermanently ||
		r.Code == "InvalidRegion":
		return fmt.Errorf("%w: %s in %s: is --s3-region the bucket's? (%s: %s)", ErrDenied, doing, s, r.Code, r.Message)
	case r.StatusCode == http.StatusForbidden || r.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%w: these credentials may not %s in %s; a backup needs GetObject, PutObject, DeleteObject, AbortMultipartUpload, ListBucket (%s: %s)",
			ErrDenied, doing, s, r.Code, r.Message)
	case r.StatusCode == http.StatusInsufficientStorage || strings.Contains(r.Code, "Quota") ||
		strings.Contains(r.Code, "StorageFull"):
		return fmt.Errorf("%w: %s in %s: %s: %s; what was written before is whole: make room and run the same command again",
			ErrNoSpace, doing, s, r.Code, r.Message)
	}
	return fmt.Errorf("%w: %s in %s: %s answers %d %s: %s", ErrStore, doing, s, at, r.StatusCode, r.Code, r.Message)
}
