package sluiceredis

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/limits"
)

// A mad is a server that replies with whatever numbers come next, or with an error.
type mad struct {
	mu      sync.Mutex // a Store asks from several goroutines
	numbers []byte
}

var errMad = errors.New("LOADING")

func (m *mad) next() (n byte) {
	if len(m.numbers) > 0 {
		n, m.numbers = m.numbers[0], m.numbers[1:]
	}
	return n
}

// reply has a byte that says how many integers come, and for each one that says how long it is.
func (m *mad) reply() ([]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	count := int(m.next())
	if count >= 250 {
		return nil, errMad
	}
	var ints []int64
	for range count % 16 {
		var b [8]byte
		for i := range int(m.next()) % 9 {
			b[i] = m.next()
		}
		ints = append(ints, int64(binary.LittleEndian.Uint64(b[:])))
	}
	return ints, nil
}

func (m *mad) Run(context.Context, *Script, []string, []string) ([]int64, error) { return m.reply() }

func (m *mad) RunMany(_ context.Context, calls []ScriptCall) (all []Reply) {
	for range calls {
		ints, err := m.reply()
		all = append(all, Reply{ints, err})
	}
	return all
}

// A gate would take part of a limit that is negative, or age that has wrapped, for true.
func TestStore_Exchange_ImpossibleReplies(t *testing.T) {
	good := []int64{0, 1, 2, 3, 4, 5, 6, 0}
	ask := func(reply []int64) error {
		store := limits.Must(New(fixed{reply}, Config{}))
		_, err := store.Exchange(t.Context(), "group", peers.Report{ID: "id", Want: peers.Whole})
		return err
	}
	if err := ask(good); err != nil {
		t.Error(err)
	}
	for _, i := range []int{1, 2, 3, 6} {
		for _, bad := range []int64{-1, math.MinInt64, math.MaxInt64} {
			reply := slices.Clone(good)
			reply[i] = bad
			if err := ask(reply); err == nil {
				t.Errorf("%d was accepted", reply)
			}
		}
	}
}

// A fixed is a server that replies the same to everything.
type fixed struct{ reply []int64 }

func (f fixed) Run(context.Context, *Script, []string, []string) ([]int64, error) {
	return f.reply, nil
}

func (f fixed) RunMany(_ context.Context, calls []ScriptCall) []Reply {
	return slices.Repeat([]Reply{{Ints: f.reply}}, len(calls))
}

// FuzzReplies lets each limit meet a server that replies nonsense. A call ends with an error or with a
// result that is possible; nothing panics, and no call hangs.
func FuzzReplies(f *testing.F) {
	f.Add([]byte{3, 1, 1, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 128}, uint8(0))
	f.Add([]byte{255, 0, 2, 8, 255, 255, 255, 255, 255, 255, 255, 127, 1, 5}, uint8(1))
	f.Add([]byte{0, 0, 0, 0}, uint8(2))
	for which := range uint8(6) {
		f.Add([]byte{4, 1, 0, 1, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 4, 255, 255, 255, 255, 5, 0, 0, 0, 0, 0}, which)
	}
	f.Fuzz(func(t *testing.T, numbers []byte, which uint8) {
		synctest.Test(t, func(t *testing.T) {
			store := limits.Must(New(&mad{numbers: numbers}, Config{OnOutage: OutagePolicy(which%3) + FailClosed, Strict: which%5 == 0}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			askMad(t, ctx, store, which)
			time.Sleep(time.Hour) // until what is in the background has ended
		})
	})
}

func askMad(t *testing.T, ctx context.Context, store *Store, which uint8) {
	rate := limits.Rate{Count: 10, Per: time.Second, Burst: 5}
	took := func(r limits.Result, err error) {
		if err == nil && (r.RetryAfter < 0 || r.Remaining < 0 || r.Allowed() && r.RetryAfter > 0) {
			t.Errorf("%+v", r)
		}
	}
	switch which % 6 {
	case 0:
		b := limits.Must(store.Bucket("b", rate))
		for range 3 {
			took(b.Take(ctx, "key", 2))
		}
		_ = b.On("key").Adjust(ctx, -1, time.Second)
	case 1:
		took(limits.Must(store.Sliding("s", 10, time.Second)).Take(ctx, "key", 2))
		took(limits.Must(store.Fixed("f", FixedConfig{Limit: 10, Window: time.Second})).Take(ctx, "key", 2))
	case 2:
		p := limits.Must(store.Pacer("p", rate, PacerConfig{}))
		_ = p.AcquireWithin(ctx, 1, time.Second)
		if wait, err := p.Admit(ctx, 1); err == nil && wait < 0 {
			t.Errorf("a wait of %v", wait)
		}
		_ = p.PauseUntil(ctx, time.Now().Add(time.Second))
	case 3:
		s := limits.Must(store.Semaphore("s", 2, SemaphoreConfig{}))
		if lease, err := s.Acquire(ctx, 1, time.Second); err == nil {
			lease.Release()
		}
	case 4:
		reply, err := store.Exchange(ctx, "group", peers.Report{ID: "id", Want: peers.Whole})
		if err == nil && (reply.Peers < 0 || reply.Age < 0) {
			t.Errorf("%+v", reply)
		}
	case 5:
		_ = store.ConfirmIntact(ctx)
	}
}
