package batch

import (
	"context"
	"sync"
)

// A backlog is the results of calls that are there, but not printed and noted in the log yet. If the
// program is killed, their items are run again, so no call begins while there are too many of them.
// Its zero value has no limit.
//
// With -ordered a result may wait for an item that waits for its server, so that there can be no limit.
type backlog struct {
	most int // 0 is no limit

	mu   sync.Mutex
	n    int
	less chan struct{} // closed when there is one less, nil if nothing waits for that
}

func (b *backlog) add() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
}

func (b *backlog) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n--
	if b.less != nil {
		close(b.less)
		b.less = nil
	}
}

// wait waits until there is room, or ctx is over.
func (b *backlog) wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		if b.most == 0 || b.n < b.most {
			b.mu.Unlock()
			return nil
		}
		if b.less == nil {
			b.less = make(chan struct{})
		}
		less := b.less
		b.mu.Unlock()
		select {
		case <-less:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
