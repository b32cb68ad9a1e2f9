package crawl

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/cmd/internal/robots"
)

// A link is an address to visit. Its JSON is in the store.
type link struct {
	URL     string `json:"u"`           // normal
	Depth   int    `json:"d,omitempty"` // how many links it is away from the first pages
	From    string `json:"f,omitempty"` // the page that had it first
	Sitemap bool   `json:"s,omitempty"`
	Hops    int    `json:"h,omitempty"` // redirects, and canonical addresses, in a row before it
	First   bool   `json:"1,omitempty"` // an address of the command line redirects here
	Again   bool   `json:"z,omitempty"` // it has a line already, which says that it failed

	// What has happened: a link that failed or was refused goes behind the others.
	Tries     int       `json:"t,omitempty"` // failures
	Refused   int       `json:"r,omitempty"`
	Granted   int64     `json:"g,omitempty"` // those of the host at the last refusal
	NotBefore time.Time `json:"n,omitzero"`

	place uint64 // in the queue of its host

	etag, modified string // of the page that is known, if it is asked whether that has changed
}

// first reports whether the crawl begins here: an address of the command line, or where
// such an address redirects.
func (l link) first() bool { return l.From == "" || l.First }

// A hostRecord is what the store has of a host.
type hostRecord struct {
	Key    string `json:"key"` // scheme, host and port
	Head   uint64 `json:"head,omitempty"`
	Tail   uint64 `json:"tail,omitempty"` // the queue has places from head up to tail
	Queued int64  `json:"queued,omitempty"`

	Taken     int   `json:"taken,omitempty"`     // pages asked for, with a result
	Pages     int   `json:"pages,omitempty"`     // that were answered well
	Missing   int   `json:"missing,omitempty"`   // and with a status from 400 to 499
	Failed    int   `json:"failed,omitempty"`    // and not, or with a status that says to try again
	Forbidden int   `json:"forbidden,omitempty"` // not asked for
	Requests  int   `json:"requests,omitempty"`  // robots.txt and further attempts included
	Refused   int   `json:"refused,omitempty"`   // of those
	Granted   int64 `json:"granted,omitempty"`   // good answers

	NotBefore time.Time `json:"not_before,omitzero"` // of the next request
	Far       bool      `json:"far,omitempty"`       // the server asked for more than -max-wait
	Bad       int       `json:"bad,omitempty"`       // requests since the last good answer
	Aside     int       `json:"aside,omitempty"`     // how often it was set aside since then
	Gone      bool      `json:"gone,omitempty"`      // too often
	Last      string    `json:"last,omitempty"`      // why the last request that failed did so

	RobotsTries int           `json:"robots_tries,omitempty"`
	RobotsDue   time.Time     `json:"robots_due,omitzero"` // when robots.txt is to be read, again
	Why         string        `json:"why,omitempty"`       // no page is asked for, and why
	About       string        `json:"about,omitempty"`     // robots.txt in words
	CrawlDelay  time.Duration `json:"crawl_delay,omitempty"`
	Learned     []byte        `json:"learned,omitempty"` // by its gate
}

// A host is a record and, while its links are visited, what that needs. It is guarded by
// the lock of the crawler.
type host struct {
	hostRecord
	id hostID

	workers int
	leaving bool          // its workers are to end
	ready   bool          // robots.txt was read, or is not to be had
	rules   *robots.Rules // nil before that
	turn    int           // visits until it makes room for others
	asking  int           // pages that are being asked for
	window  []link        // the next links
	cursor  uint64        // the place behind the window
	busy    []uint64      // the places that workers have
	latency time.Duration // of the last good answer

	begin context.Context // of its workers; no request begins after it has ended
	end   context.CancelFunc
}

// totals are the counts of the crawl. They are stored with each page.
type totals struct {
	Version int   `json:"version"`
	Offset  int64 `json:"offset"` // of the file of pages, up to which the store knows it

	Known  int64 `json:"known"`  // addresses that were seen
	Queued int64 `json:"queued"` // addresses to be visited
	Hosts  int64 `json:"hosts"`

	Taken      int   `json:"taken"`
	Pages      int64 `json:"pages"`
	Redirects  int64 `json:"redirects"` // of the pages
	Missing    int64 `json:"missing"`
	Failed     int64 `json:"failed"`
	Forbidden  int64 `json:"forbidden"`
	Duplicates int64 `json:"duplicates"`
	Requests   int64 `json:"requests"`
	Refused    int64 `json:"refused"`
	Bytes      int64 `json:"bytes"`

	// What became of pages since the crawl before.
	New       int64 `json:"new,omitempty"`
	Changed   int64 `json:"changed,omitempty"`
	Unchanged int64 `json:"unchanged,omitempty"`
	Vanished  int64 `json:"gone,omitempty"`

	// Why links were not followed.
	TooDeep     int64 `json:"too_deep"`
	Elsewhere   int64 `json:"elsewhere"`
	Excluded    int64 `json:"excluded"`
	Nofollow    int64 `json:"nofollow"`
	TooMany     int64 `json:"too_many"`
	TooManyHops int64 `json:"too_many_redirects"`
	Unreadable  int64 `json:"unreadable"`
}

// storeVersion is the version of the keys and values in a store.
const storeVersion = 1
