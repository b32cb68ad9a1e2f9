package batch

import (
	"strings"
	"testing"

	"github.com/sluice-go/sluice/cmd/internal/queue"
)

func TestWritten(t *testing.T) {
	var w written
	w.read(strings.NewReader(`
		{"seq":1,"id":"confirmed","queue":"now","ok":true}
		{"seq":2,"id":"of another","queue":"before","ok":true}
		{"seq":3,"id":"failed","queue":"now","ok":false}
		{"seq":4,"id":"ok","queue":"now","ok":false}
		{"seq":4,"id":"ok","queue":"now","ok":true}
		no line
		{"seq":5,"id":"cut","queue":"now","ok":true}`), "now", 1)
	want := func(seq int64, id string, known, ok bool) {
		t.Helper()
		if k, o := w.has(&queue.Item{Seq: seq, ID: id}); k != known || o != ok {
			t.Errorf("%d %s: %v, %v", seq, id, k, o)
		}
	}
	last := int64(100 + 3*rememberedLines)
	for seq := int64(100); seq < last; seq++ {
		w.add(&queue.Item{Seq: seq, ID: "a"}, true)
	}
	want(1, "confirmed", false, false)
	want(2, "of another", false, false)
	want(3, "failed", true, false)
	want(4, "ok", true, true)
	want(4, "another id", false, false)
	want(5, "cut", false, false)
	want(100, "a", false, false)
	want(last-rememberedLines, "a", true, true)
	want(last-1, "a", true, true)
	if n := len(w.file) + len(w.recent) + len(w.before); n > 2+2*rememberedLines {
		t.Errorf("%d are remembered", n)
	}
}
