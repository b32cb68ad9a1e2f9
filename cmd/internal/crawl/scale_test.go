package crawl

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// asScale, in the environment, makes the test binary note so many pages.
const asScale = "SLUICE_CRAWL_SCALE"

// A million pages that know ten million addresses take at most 400 MB of memory: the most
// that the process had resident, files that are mapped included. The pages are those of
// 10,000 hosts; nothing is fetched.
func TestScale(t *testing.T) {
	if os.Getenv("SLUICE_FULL") != "long" {
		t.Skip("takes half an hour; SLUICE_FULL is not long")
	}
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	cmd := asProcess(t)
	cmd.Env = append(cmd.Env, asScale+"=1000000")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	var pages, known, peak int64
	if _, err := fmt.Sscanf(string(out), "%d pages, %d known, %d MB", &pages, &known, &peak); err != nil {
		t.Fatal(err)
	}
	if pages != 1_000_000 || known != 10_000_000 || peak > 400 {
		t.Errorf("%d pages, %d addresses known, %d MB", pages, known, peak)
	}
}

// scale notes pages as a crawl does, each with nine links that are new and some that are
// not, and prints how much memory that took.
func scale(pages int) error {
	storeFS = vfs.Default
	dir, err := os.MkdirTemp("", "sluice-crawl-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	setMemoryLimit()
	o, err := parseOptions([]string{"-span", "-pages", "2000000", "-depth", "1000000", "-dir", filepath.Join(dir, "d"), address(0)})
	if err != nil {
		return err
	}
	c, err := newCrawler(o, new(http.Transport))
	if err != nil {
		return err
	}
	began := time.Now()
	for i := range pages {
		p := page{URL: address(i), Depth: 1, Status: 200, Type: "text/html; charset=utf-8", Title: "A page", Bytes: 10_000, From: address(i / 9)}
		for j := 9*i + 1; j <= 9*i+9; j++ {
			p.Links = append(p.Links, address(j))
		}
		for j := range 9 { // the menu of the site, and pages nearby
			p.Links = append(p.Links, address(j), address(max(0, i-j*10_000)))
		}
		c.mu.Lock()
		ch := c.change()
		if err := c.out.write(p); err != nil {
			return err
		}
		c.totals.Offset = c.out.size()
		if i > 0 { // from a sitemap, which makes it ten million
			ch.add(link{URL: address(20_000_000 + i), From: "x"})
		}
		ch.visited(p)
		err := ch.commit()
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
	t := c.totals
	fmt.Printf("%d pages, %d known, %d MB, %v, %d queued\n", t.Pages, t.Known, peakMB(), time.Since(began).Round(time.Second), t.Queued)
	return c.close()
}

// address is that of one of many pages, of ten thousand hosts.
func address(i int) string {
	return fmt.Sprintf("https://host%d.example.com/articles/2026/11/%d.html", i%10_000, i)
}

// peakMB is the most memory that was resident, in MB.
func peakMB() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kB, _ := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return (kB*1024 + 999_999) / 1_000_000
		}
	}
	return 0
}
