package main

import (
	"strings"
	"testing"
	"time"
)

func TestBooks(t *testing.T) {
	b := newBooks(time.Now())
	b.follow(1, strings.NewReader("take 1\ntake 2\ntake 3\ntake 4\ndone 4\ntak"))
	b.follow(2, strings.NewReader("take 5\ndone 3\n")) // 3 was done, whoever did it
	if n := b.kill(1, 10*time.Second); n != 2 {
		t.Fatalf("worker 1 had %d items, want 1 and 2", n)
	}
	v := b.victims[0]
	b.note(2, "take", 5, 11*time.Second)
	b.note(2, "take", 1, 12*time.Second)
	if len(v.held) != 1 || v.last != 12*time.Second {
		t.Errorf("%d are missing, the last one came at %v; want 2 missing, and 12s", len(v.held), v.last)
	}
	b.note(3, "take", 2, 13*time.Second)
	b.note(3, "take", 2, 14*time.Second)
	if len(v.held) != 0 || v.last != 13*time.Second {
		t.Errorf("%d are missing, the last one came at %v; want none, and 13s", len(v.held), v.last)
	}
	if n := b.redelivered(); n != 4 { // 5, 1, and 2 twice
		t.Errorf("%d deliveries again, want 4", n)
	}
	if n := b.kill(3, 15*time.Second); n != 1 {
		t.Errorf("worker 3 had %d items, want 2", n)
	}
}
