package crawl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// A page is one line of the output: an address that was visited, or why not.
// Together the lines are a graph, from URL to Links and Location.
type page struct {
	URL   string `json:"url"`
	Depth int    `json:"depth"`           // links from the first pages
	From  string `json:"from,omitempty"`  // the page that had it first
	First bool   `json:"first,omitempty"` // an address of the command line redirects here
	Hops  int    `json:"hops,omitempty"`  // redirects, and canonical addresses, in a row before it

	Again bool `json:"again,omitempty"` // it is in the place of an earlier line, of a page that failed

	Refresh string `json:"refresh,omitempty"` // since the crawl before: new, changed, unchanged or gone
	Skipped string `json:"skipped,omitempty"` // why it was not asked for
	Error   string `json:"error,omitempty"`   // why there is no page

	Status     int      `json:"status,omitempty"`
	Type       string   `json:"type,omitempty"`
	Bytes      int      `json:"bytes,omitempty"` // of the body that were read
	Cut        bool     `json:"cut,omitempty"`   // there were more than -max-body
	Title      string   `json:"title,omitempty"`
	Location   string   `json:"location,omitempty"`  // where a redirect goes
	Canonical  string   `json:"canonical,omitempty"` // the address that the page names as its own
	Noindex    bool     `json:"noindex,omitempty"`   // the page asks not to be in an index
	Digest     string   `json:"digest,omitempty"`    // of the body, in hex
	Duplicate  string   `json:"duplicate,omitempty"` // the first page of the host with this digest: links are not followed
	Links      []string `json:"links,omitempty"`
	Nofollow   []string `json:"nofollow,omitempty"`   // links that are not to be followed
	Unreadable int      `json:"unreadable,omitempty"` // links that are not addresses
	Sitemap    bool     `json:"sitemap,omitempty"`    // links are those of a sitemap, or it redirects to one
	Sitemaps   []string `json:"sitemaps,omitempty"`   // of an index of sitemaps

	ETag     string `json:"etag,omitempty"`          // for -refresh
	Modified string `json:"last_modified,omitempty"` // for -refresh

	Attempts int     `json:"attempts,omitempty"`
	Sent     string  `json:"sent,omitempty"`    // the last attempt, RFC 3339 in UTC
	WaitMS   float64 `json:"wait_ms,omitempty"` // for the gate, before the last attempt
	TookMS   float64 `json:"took_ms,omitempty"` // the last attempt

	modified map[string]time.Time // of the pages of a sitemap
}

// answer fills in what a host answered.
func (p *page) answer(a answer) {
	p.Status, p.Bytes, p.Cut = a.status, len(a.body), a.cut
	p.Type = a.header.Get("Content-Type")
	p.ETag, p.Modified = a.header.Get("ETag"), a.header.Get("Last-Modified")
	p.Sent = a.sent.UTC().Format(time.RFC3339Nano)
	p.WaitMS, p.TookMS = milliseconds(a.waited), milliseconds(a.took)
	switch err := a.failure(); {
	case err != nil:
		p.Error = err.Error()
	case a.status == 429 || a.status == 529:
		p.Error = (&statusError{a.status}).Error()
	}
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// A sink is the file of pages. A page is noted when its line is in the file: the system
// has it then, whatever happens to the process. A power loss costs the pages of the last five
// seconds. It is guarded by the lock of the crawler.
type sink struct {
	f    *os.File
	end  int64
	line bytes.Buffer

	mu     sync.Mutex
	timer  *time.Timer // of a sync, nil if none is due
	failed error       // of the last one
}

// syncAfter is how long a line may be in memory only. While the file is synced nothing can
// be written to it, for as long as a second if the disk is busy.
const syncAfter = 5 * time.Second

var errNothing = errors.New("holds no crawl to resume; to begin one, give an address")

var errExists = errors.New("holds a crawl; -resume continues it")

// openSink opens the file. A line that was not finished is removed.
func openSink(name string) (*sink, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, err
	}
	s := &sink{f: f}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return s, nil
}

func (s *sink) open() error {
	size, err := s.f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if s.end, err = lastLine(s.f, size); err != nil || s.end == size {
		return err
	}
	return s.f.Truncate(s.end)
}

// lastLine returns where the last line ends that is complete.
func lastLine(f io.ReaderAt, size int64) (int64, error) {
	const step = 64 << 10
	buf := make([]byte, step)
	for end := size; end > 0; end -= step {
		begin := max(0, end-step)
		n, err := f.ReadAt(buf[:end-begin], begin)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return begin + int64(i) + 1, nil
		}
	}
	return 0, nil
}

// each calls f for the pages from an offset on, with the offset of the next.
func (s *sink) each(from int64, f func(p page, end int64) error) error {
	r := bufio.NewReaderSize(io.NewSectionReader(s.f, from, s.end-from), 1<<20)
	for at := from; ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var p page
		if err := decode(line, &p); err != nil {
			return fmt.Errorf("%s: line %d, at byte %d, is damaged: %w; delete this line and use -resume: its page is fetched again", s.f.Name(), s.lineAt(at), at, err)
		}
		at += int64(len(line))
		if err := f(p, at); err != nil {
			return err
		}
	}
}

// lineAt returns the number of the line at an offset, from 1 on.
func (s *sink) lineAt(offset int64) int {
	number := 1
	r := bufio.NewReaderSize(io.NewSectionReader(s.f, 0, offset), 1<<20)
	for {
		_, err := r.ReadSlice('\n')
		switch {
		case err == nil:
			number++
		case !errors.Is(err, bufio.ErrBufferFull):
			return number
		}
	}
}

func decode(text []byte, to any) error { return json.Unmarshal(text, to) }

// size is the offset of the next line.
func (s *sink) size() int64 { return s.end }

// write writes a page.
func (s *sink) write(p page) error {
	s.line.Reset()
	enc := json.NewEncoder(&s.line)
	enc.SetEscapeHTML(false) // addresses have &
	if err := enc.Encode(p); err != nil {
		return err
	}
	n, err := s.f.Write(s.line.Bytes())
	if err != nil {
		if n > 0 {
			_ = s.f.Truncate(s.end)
		}
		return fmt.Errorf("writing the pages: %w", err)
	}
	s.end += int64(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil {
		s.timer = time.AfterFunc(syncAfter, s.sync)
	}
	return s.failed
}

// sync gets the lines to the disk.
func (s *sink) sync() {
	s.mu.Lock()
	s.timer = nil
	s.mu.Unlock()
	if err := s.f.Sync(); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failed = fmt.Errorf("writing the pages: %w", err)
	}
}

func (s *sink) close() error {
	s.mu.Lock()
	due := s.timer != nil && s.timer.Stop()
	s.mu.Unlock()
	if due {
		s.sync()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.failed, s.f.Close())
}
