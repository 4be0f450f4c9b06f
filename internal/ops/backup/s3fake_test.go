package backup

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeS3 is a service with one bucket, "kept", which fails on command.
type fakeS3 struct {
	*httptest.Server
	mu      sync.Mutex
	objects map[string]fakeObject
	uploads map[string]*fakeUpload
	next    int
	plain   int // conditions: 0 heeded, 1 ignored, 2 refused
	// fault, if it says so, has answered the request; with after it is asked once the request was carried out.
	fault func(w http.ResponseWriter, r *http.Request, after bool) bool
}

type fakeObject struct {
	data []byte
	etag string
	meta http.Header
}

type fakeUpload struct {
	key   string
	meta  http.Header
	parts map[int]fakeObject
}

func newFakeS3(t *testing.T) *fakeS3 {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "one")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "two")
	f := &fakeS3{objects: map[string]fakeObject{}, uploads: map[string]*fakeUpload{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// shortTimes make a dead process known soon.
var shortTimes = s3Times{request: time.Minute, idle: 10 * time.Second, renew: 100 * time.Millisecond,
	valid: 30 * time.Second, stale: 4 * time.Second}

// place opens a backup in it as another process does.
func (f *fakeS3) place(t *testing.T, prefix string) *S3 {
	t.Helper()
	s, err := OpenS3(t.Context(), S3Options{URL: "s3://kept/" + prefix, Endpoint: f.URL, PathStyle: true, Say: t.Logf})
	check(t, err)
	s.time = shortTimes
	return s
}

func (f *fakeS3) set(fault func(w http.ResponseWriter, r *http.Request, after bool) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *fakeS3) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.objects))
}

// cut ends the connection without an answer.
func cut(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func fakeError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test has it</Message></Error>", code)
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	fault := f.fault
	f.mu.Unlock()
	if fault != nil && fault(w, r, false) {
		return
	}
	body, err := io.ReadAll(r.Body)
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	sum := md5.Sum(body)
	want := r.Header.Get("Content-Md5")
	switch {
	case err != nil:
		return
	case !strings.Contains(r.Header.Get("Authorization"), "Credential=one/"):
		fakeError(w, http.StatusForbidden, "InvalidAccessKeyId")
		return
	case bucket != "kept":
		fakeError(w, http.StatusNotFound, "NoSuchBucket")
		return
	case want != "" && want != base64.StdEncoding.EncodeToString(sum[:]):
		fakeError(w, http.StatusBadRequest, "BadDigest")
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := httptest.NewRecorder()
	f.serve(answer, r, key, body)
	if fault != nil && fault(w, r, true) {
		return
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// serve carries a request out.
func (f *fakeS3) serve(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	q := r.URL.Query()
	id := q.Get("uploadId")
	switch {
	case r.Method == http.MethodGet && q.Has("uploads"):
		f.listUploads(w, q.Get("prefix"))
	case r.Method == http.MethodGet && key == "":
		f.list(w, q.Get("prefix"))
	case r.Method == http.MethodPost && q.Has("uploads"):
		f.next++
		id := fmt.Sprint("upload-", f.next)
		f.uploads[id] = &fakeUpload{key, r.Header, map[int]fakeObject{}}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case id != "" && f.uploads[id] == nil:
		fakeError(w, http.StatusNotFound, "NoSuchUpload")
	case r.Method == http.MethodPut && id != "":
		n, _ := strconv.Atoi(q.Get("partNumber"))
		f.uploads[id].parts[n] = newFakeObject(body, nil)
		w.Header().Set("ETag", f.uploads[id].parts[n].etag)
	case r.Method == http.MethodDelete && id != "":
		delete(f.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost && id != "":
		f.complete(w, r, key, id, body)
	case r.Method == http.MethodPut:
		if f.heeds(w, r, key) {
			f.objects[key] = newFakeObject(body, r.Header)
			w.Header().Set("ETag", f.objects[key].etag)
		}
	case r.Method == http.MethodDelete:
		delete(f.objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		f.get(w, r, key)
	}
}

func newFakeObject(data []byte, meta http.Header) fakeObject {
	sum := md5.Sum(data)
	return fakeObject{data, `"` + hex.EncodeToString(sum[:]) + `"`, meta}
}

// heeds answers a request whose condition does not hold.
func (f *fakeS3) heeds(w http.ResponseWriter, r *http.Request, key string) bool {
	have, there := f.objects[key]
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case f.plain == 1 || match == "" && none == "":
		return true
	case f.plain == 2:
		fakeError(w, http.StatusNotImplemented, "NotImplemented")
	case match != "" && !there:
		fakeError(w, http.StatusNotFound, "NoSuchKey")
	case none != "" && there, match != "" && have.etag != match:
		fakeError(w, http.StatusPreconditionFailed, "PreconditionFailed")
	default:
		return true
	}
	return false
}

func (f *fakeS3) complete(w http.ResponseWriter, r *http.Request, key, id string, body []byte) {
	var asked struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if xml.Unmarshal(body, &asked) != nil || !f.heeds(w, r, key) {
		return
	}
	var whole []byte
	for _, p := range asked.Part {
		have, ok := f.uploads[id].parts[p.PartNumber]
		if !ok || strings.Trim(p.ETag, `"`) != strings.Trim(have.etag, `"`) {
			fakeError(w, http.StatusBadRequest, "InvalidPart")
			return
		}
		whole = append(whole, have.data...)
	}
	f.objects[key] = newFakeObject(whole, f.uploads[id].meta)
	delete(f.uploads, id)
	fmt.Fprintf(w,
		"<CompleteMultipartUploadResult><Bucket>kept</Bucket><Key>%s</Key><ETag>%s</ETag></CompleteMultipartUploadResult>",
		key, f.objects[key].etag)
}

func (f *fakeS3) get(w http.ResponseWriter, r *http.Request, key string) {
	o, ok := f.objects[key]
	if !ok {
		fakeError(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	for name, values := range o.meta {
		if strings.HasPrefix(name, "X-Amz-Meta-") {
			w.Header()[name] = values
		}
	}
	w.Header().Set("ETag", o.etag)
	http.ServeContent(w, r, "", began, bytes.NewReader(o.data))
}

func (f *fakeS3) list(w http.ResponseWriter, prefix string) {
	fmt.Fprint(w, "<ListBucketResult><Name>kept</Name><IsTruncated>false</IsTruncated>")
	for _, key := range slices.Sorted(maps.Keys(f.objects)) {
		if strings.HasPrefix(key, prefix) {
			fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size><ETag>x</ETag></Contents>", key, len(f.objects[key].data))
		}
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

func (f *fakeS3) listUploads(w http.ResponseWriter, prefix string) {
	fmt.Fprint(w, "<ListMultipartUploadsResult><Bucket>kept</Bucket><IsTruncated>false</IsTruncated>")
	for id, u := range f.uploads {
		if strings.HasPrefix(u.key, prefix) {
			fmt.Fprintf(w, "<Upload><Key>%s</Key><UploadId>%s</UploadId></Upload>", u.key, id)
		}
	}
	fmt.Fprint(w, "</ListMultipartUploadsResult>")
}
