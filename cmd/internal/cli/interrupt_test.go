package cli

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestNextSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, quit := make(chan os.Signal, 9), make(chan struct{})
		next := nextSignal()
		var got []time.Duration
		start := time.Now()
		go func() {
			for next(signals, quit) {
				got = append(got, time.Since(start))
			}
		}()
		for _, s := range []struct {
			after time.Duration
			sig   os.Signal
		}{
			{0, syscall.SIGTERM}, {199 * time.Millisecond, syscall.SIGTERM}, // one
			{200 * time.Millisecond, syscall.SIGTERM},
			{time.Millisecond, os.Interrupt}, {49 * time.Millisecond, os.Interrupt}, // one, of timeout -s INT
			{50 * time.Millisecond, os.Interrupt}, // a person
		} {
			time.Sleep(s.after)
			signals <- s.sig
			synctest.Wait()
		}
		close(quit)
		synctest.Wait()
		if want := []time.Duration{0, 399 * time.Millisecond, 400 * time.Millisecond, 499 * time.Millisecond}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
