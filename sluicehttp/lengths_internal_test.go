package sluicehttp

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// looked reports whether l looks at a brief response with this body, and whether it is fine.
func looked(l *lengths, body string) (looks, fine bool) {
	resp := &http.Response{StatusCode: http.StatusOK, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body))}
	before := resp.Body
	fine = l.fine(resp, time.Second)
	return resp.Body != before, fine
}

// After eight fine responses of one length only one of 64 of that length is looked at; one of another length always
// is, and one that may be an envelope makes all be looked at.
func TestLengths(t *testing.T) {
	var l lengths
	const ack, other, limit = `{"ok":true}`, `{"id":1234567}`, `{"error":"Too many requests"}`
	want := func(body string, looks, fine bool) {
		t.Helper()
		if gotLooks, gotFine := looked(&l, body); gotLooks != looks || gotFine != fine {
			t.Errorf("%s: looked at: %t, fine: %t; want %t, %t", body, gotLooks, gotFine, looks, fine)
		}
	}
	for range usual {
		want(ack, true, true)
	}
	for range 2 {
		for range usualLook {
			want(ack, false, true)
		}
		want(ack, true, true)
	}
	want(limit, true, false)
	for range usual {
		want(ack, true, true)
	}
	want(ack, false, true)
	want(other, true, true)
	want(ack, true, true)
}

// An envelope as long as the acknowledgements before it is found by the look that comes next.
func TestLengths_AnEnvelopeOfTheSameLength(t *testing.T) {
	var l lengths
	ack, limit := `{"status":"accepted, thanks"}`, `{"error":"Too many requests"}`
	for range usual {
		looked(&l, ack)
	}
	missed := 0
	for {
		if _, fine := looked(&l, limit); !fine {
			break
		}
		missed++
	}
	if missed != usualLook || len(ack) != len(limit) {
		t.Errorf("%d are missed, want %d", missed, usualLook)
	}
	if looks, fine := looked(&l, limit); !looks || fine {
		t.Error("the one after it is missed, too")
	}
}
