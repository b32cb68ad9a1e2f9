package sluicetest

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// wires runs f in a bubble with the two ends of a connection.
func wires(t *testing.T, f func(t *testing.T, a, b *wire)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, b := newWires(addr("a:1"), addr("b:2"))
		f(t, a, b)
		_, _ = a.Close(), b.Close()
	})
}

func TestWire_HasABuffer(t *testing.T) {
	wires(t, func(t *testing.T, a, b *wire) {
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			if n, err := io.ReadFull(b, make([]byte, 10)); n != 10 || err != nil {
				t.Errorf("read %d, %v", n, err)
			}
		}()
		full := strings.Repeat("x", buffered)
		if n, err := io.WriteString(a, full); n != buffered || err != nil || time.Since(start) != 0 {
			t.Errorf("what fits: %d, %v, after %v", n, err, time.Since(start))
		}
		if n, err := io.WriteString(a, "0123456789"); n != 10 || err != nil || time.Since(start) != time.Second {
			t.Errorf("what does not: %d, %v, after %v", n, err, time.Since(start))
		}
		_ = a.SetWriteDeadline(time.Now().Add(time.Minute))
		if n, err := io.WriteString(a, "too much"); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute+time.Second {
			t.Errorf("with a deadline: %d, %v, after %v", n, err, time.Since(start))
		}
	})
}

func TestWire_Deadlines(t *testing.T) {
	wires(t, func(t *testing.T, a, b *wire) {
		start := time.Now()
		expires := func(want time.Duration) {
			t.Helper()
			_, err := a.Read(make([]byte, 1))
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(start) != want {
				t.Errorf("%v after %v, want a timeout after %v", err, time.Since(start), want)
			}
		}
		_ = a.SetReadDeadline(start.Add(time.Second))
		expires(time.Second)
		expires(time.Second) // and stays so
		_ = a.SetReadDeadline(start.Add(-1))
		expires(time.Second)
		_ = a.SetReadDeadline(start.Add(time.Hour))
		go func() { // one that comes sooner reaches a read that waits
			time.Sleep(time.Second)
			_ = a.SetReadDeadline(start.Add(5 * time.Second))
		}()
		expires(5 * time.Second)
		_ = a.SetDeadline(time.Time{})
		_, _ = io.WriteString(b, "x")
		if n, err := a.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("without a deadline: %d, %v", n, err)
		}
	})
}

func TestWire_Ends(t *testing.T) {
	is := func(err, want error) bool { return err == want || errors.Is(err, want) }
	for _, tt := range []struct {
		name       string
		end        func(a *wire)
		data       string // that b can still read of "abc"
		read       error  // of b, then
		write      error  // of b, the first
		lost       error  // of b, the last of many
		read2, out error  // of a
	}{
		{"CloseWrite", func(a *wire) { _ = a.CloseWrite() }, "abc", io.EOF, nil, os.ErrDeadlineExceeded, nil, net.ErrClosed},
		{"Close", func(a *wire) { _ = a.Close() }, "abc", io.EOF, nil, errPipe, net.ErrClosed, net.ErrClosed},
		{"Reset", func(a *wire) { a.Reset() }, "", errReset, errReset, errReset, net.ErrClosed, net.ErrClosed},
	} {
		wires(t, func(t *testing.T, a, b *wire) {
			_, _ = io.WriteString(a, "abc")
			tt.end(a)
			data, err := io.ReadAll(b)
			if err == nil {
				err = io.EOF
			}
			if string(data) != tt.data || !is(err, tt.read) {
				t.Errorf("%s: read %q, %v", tt.name, data, err)
			}
			if _, err := io.WriteString(b, "d"); !is(err, tt.write) {
				t.Errorf("%s: first write: %v", tt.name, err)
			}
			_ = b.SetWriteDeadline(time.Now().Add(time.Second))
			for i := 0; i < 3 && err == io.EOF; i++ {
				_, err2 := b.Write(make([]byte, buffered))
				if i == 2 && !is(err2, tt.lost) {
					t.Errorf("%s: last write: %v, want %v", tt.name, err2, tt.lost)
				}
			}
			if _, err := a.Read(make([]byte, 1)); !is(err, tt.read2) {
				t.Errorf("%s: its own read: %v", tt.name, err)
			}
			if _, err := a.Write([]byte("e")); !is(err, tt.out) {
				t.Errorf("%s: its own write: %v", tt.name, err)
			}
			select {
			case <-b.gone:
				if tt.name == "CloseWrite" {
					t.Error("half a close says that the connection is gone")
				}
			default:
				if tt.name != "CloseWrite" {
					t.Errorf("%s is not seen at the other end", tt.name)
				}
			}
		})
	}
}
