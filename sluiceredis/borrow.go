package sluiceredis

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// # How do many callers borrow in few round trips?
//
// If each that waits asked on its own, in turn, a semaphore 5 ms away would lease 200 times a second,
// and of 512 permits for calls of 100 ms 20 would be in use. So one script asks for all that wait on
// a machine, in the order in which they came, and ends with the first that does not fit:
//
//	callers  1     2 3 4           5 6 …
//	         │     │ │ │           │ │
//	server   ├─ 1 ─┼─── 2, 3, 4 ───┼─ 4, 5, 6 …
//	                         full ▲  ▲ something was released here, or a poll
//
// The scripts are sent by a goroutine that lasts as long as callers wait, and in no caller's
// context. What is leased to a caller that has left is returned. While callers wait, leases are released by
// the script that acquires others, so that permits go from one to the other in one round trip; otherwise
// callers that release share scripts in the same way: see package gather.

// One script acquires for at least fewestBorrowers callers, and for twice as many as were served last,
// because those that do not fit also cost the server time; but not for more than mostBorrowers.
const fewestBorrowers, mostBorrowers = 16, 500

// A borrower is a caller that waits for permits.
type borrower struct {
	id     string
	n      int64
	answer chan lent // of capacity 1

	// Guarded by the lock of the semaphore:
	asked   bool // a script is under way for it
	unknown bool // so was one that was given up; a later one that rejects does not show its outcome
	gone    bool // it does not wait any more
}

// A release is a lease to be released; late says that a request for it may still arrive. done, of
// capacity 1, gets the error of the script that does it.
type release struct {
	id   string
	late bool
	done chan error
}

// lent is how the wait of a borrower has ended.
type lent struct {
	lease *Lease
	err   error
}

// queue is acquire that waits until ctx ends, behind others of this machine.
func (s *Semaphore) queue(ctx context.Context, n int64) (*Lease, error) {
	b := &borrower{id: s.store.unique(), n: n, answer: make(chan lent, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, b)
	if !s.asking {
		s.asking = true
		go s.askForAll()
	}
	s.mu.Unlock()
	select {
	case got := <-b.answer:
		return got.lease, got.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case got := <-b.answer: // at the last moment
		return got.lease, got.err
	default:
	}
	b.gone = true // next forgets it
	if !b.asked && b.unknown {
		go s.giveBack(b.id, true)
	}
	s.ring() // the others may fit now, or none waits
	return nil, ctx.Err()
}

// ring has the one that asks ask again.
func (s *Semaphore) ring() {
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// askForAll asks for all that wait until none does.
func (s *Semaphore) askForAll() {
	for {
		batch, back := s.next()
		if batch == nil && back == nil {
			return
		}
		sent := time.Now()
		tokens, hint, err := s.exchange(context.Background(), batch, back)
		for _, r := range back {
			r.done <- err
		}
		if full := s.answer(batch, tokens, err, sent); !full {
			continue
		}
		if errors.Is(err, ErrAmbiguous) {
			hint = s.poll
		}
		// Machines that polled at the same times would go on doing so.
		timer := time.NewTimer(max(time.Millisecond, min(hint, s.poll/2+rand.N(s.poll+1))))
		select {
		case <-s.freed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// next returns the callers for whom to ask next, nil if none waits, and the leases to release before. Callers
// that want more than the limit are sent away.
func (s *Semaphore) next() (batch []*borrower, back []*release) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(b *borrower) bool {
		if !b.gone && b.n > s.limit {
			s.end(b, lent{err: limits.ErrTooLarge})
		}
		return b.gone
	})
	for _, b := range s.waiting[:min(2*s.served+fewestBorrowers, mostBorrowers, len(s.waiting))] {
		b.asked = true
		batch = append(batch, b)
	}
	back, s.returned = s.returned, nil
	s.asking = batch != nil || back != nil
	return batch, back
}

// exchange releases leases, and asks for others.
func (s *Semaphore) exchange(ctx context.Context, batch []*borrower, back []*release) (tokens []int64, hint time.Duration, err error) {
	if len(batch) == 0 {
		return nil, 0, s.releaseAll(ctx, struct{}{}, back)
	}
	return s.ask(ctx, batch, back)
}

// put releases a lease, along with others.
func (s *Semaphore) put(r *release) error {
	s.mu.Lock()
	joins := s.asking && !s.store.alone
	if joins {
		s.returned = append(s.returned, r)
	}
	s.mu.Unlock()
	if !joins {
		return s.releases.Do(context.Background(), struct{}{}, r)
	}
	s.ring()
	return <-r.done
}

// end ends the wait of b. s is locked.
func (s *Semaphore) end(b *borrower, with lent) {
	b.gone = true
	b.answer <- with
	if with.lease == nil && b.unknown {
		go s.giveBack(b.id, true)
	}
}

// answer tells a batch what came of it, and reports whether somebody could not be served.
func (s *Semaphore) answer(batch []*borrower, tokens []int64, err error, sent time.Time) (full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unknown := errors.Is(err, ErrAmbiguous)
	s.served = 0
	for i, b := range batch {
		b.asked = false
		b.unknown = b.unknown || unknown
		switch {
		case err == nil && tokens[i] > 0 && b.gone:
			go s.giveBack(b.id, b.unknown)
		case err == nil && tokens[i] > 0:
			s.end(b, lent{lease: s.hold(b, tokens[i], sent)})
			s.served++
		case b.gone && b.unknown:
			go s.giveBack(b.id, true)
		case b.gone:
		case err != nil && !unknown:
			s.end(b, lent{err: err})
		default:
			full = true
		}
	}
	return full
}

// ask asks for leases for a batch, one after the other, until one does not fit, and returns their
// tokens: 0 means that there is none. hint is the time until it is worth asking again then. back are
// released before.
func (s *Semaphore) ask(ctx context.Context, batch []*borrower, back []*release) (tokens []int64, hint time.Duration, err error) {
	tokens = make([]int64, len(batch))
	if s.store.alone {
		for i, b := range batch {
			s.store.stats.local.Add(1)
			if tokens[i] = s.store.local().Lend(s.keys[0], b.id, b.n, s.most()); tokens[i] == 0 {
				break
			}
		}
		return tokens, s.poll, nil
	}
	args := []string{batch[0].id, format(batch[0].n), format(s.most())}
	for _, r := range back {
		what := "-"
		if r.late {
			what = "-1"
		}
		args = append(args, r.id, what)
	}
	for _, b := range batch[1:] {
		args = append(args, b.id, format(b.n))
	}
	reply, err := s.run(ctx, 5+len(batch), "acquire", args...)
	if err != nil {
		if errors.Is(err, ErrOutage) {
			s.store.stats.refused.Add(uint64(len(batch)))
		}
		return nil, 0, err
	}
	s.store.stats.decisions.Add(uint64(len(batch)))
	s.store.stats.clamped.Add(uint64(reply[4]))
	tokens[0] = reply[1]
	copy(tokens[1:], reply[5:])
	return tokens, time.Duration(reply[2]) * time.Microsecond, nil
}

// releaseAll releases leases in one script.
func (s *Semaphore) releaseAll(ctx context.Context, _ struct{}, all []*release) error {
	var args []string
	for _, r := range all {
		late := ""
		if r.late {
			late = "1"
		}
		args = append(args, r.id, late)
	}
	_, err := s.run(ctx, 4, "release", args...)
	return err
}
