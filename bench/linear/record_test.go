package linear

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

var lasting = flag.Duration("for", 500*time.Millisecond, "how long histories of each kind are recorded and checked")

// input is what a call was, and between which instants it happened, which the
// model of a pacer needs to know. Its output is an answer.
type input struct {
	what      string // see the models
	n         int64
	id        int // of a call that may wait: enter and return have the same
	call, ret int64
}

type answer struct {
	ok  bool
	err string
	n   int64 // what was read
}

// A recorder records the calls of one goroutine.
type recorder struct {
	epoch  time.Time
	worker int
	calls  int
	ops    []porcupine.Operation
}

func (r *recorder) now() int64 { return int64(time.Since(r.epoch)) }

func (r *recorder) add(in input, out answer) {
	r.ops = append(r.ops, porcupine.Operation{
		ClientId: r.worker, Input: in, Call: in.call, Output: out, Return: in.ret,
	})
}

// do records a call that does not wait.
func (r *recorder) do(what string, n int64, f func() answer) answer {
	call := r.now()
	out := f()
	r.add(input{what: what, n: n, call: call, ret: r.now()}, out)
	return out
}

// wait records a call that may wait. In vain may mean that it was given what
// it waited for and gave it back, because its context had ended meanwhile.
func (r *recorder) wait(n int64, f func() answer) answer {
	r.calls++
	id := r.worker*1_000_000 + r.calls
	call := r.now()
	out := f()
	ret := r.now()
	r.add(input{what: "enter", n: n, id: id, call: call, ret: ret}, answer{})
	if !out.ok {
		r.add(input{what: "hand over", n: n, id: id, call: call, ret: ret}, answer{})
	}
	r.add(input{what: "return", n: n, id: id, call: call, ret: ret}, out)
	return out
}

// record has workers do something at the same time, on two CPUs, and returns what they
// recorded.
func record(workers int, seed uint64, work func(r *recorder, random *rand.Rand)) []porcupine.Operation {
	epoch := time.Now()
	recorders := make([]recorder, workers)
	start := make(chan struct{})
	var done sync.WaitGroup
	for i := range recorders {
		r := &recorders[i]
		r.epoch, r.worker = epoch, i
		done.Go(func() {
			<-start
			work(r, rand.New(rand.NewPCG(seed, uint64(i))))
		})
	}
	close(start)
	done.Wait()
	var all []porcupine.Operation
	for _, r := range recorders {
		all = append(all, r.ops...)
	}
	return all
}

// lookLong is how long a mistake that is there may take to be found.
const lookLong = 20 * time.Second

// histories records and checks histories until the time is up, and returns
// the first that is not linearizable.
func histories(t *testing.T, model porcupine.Model, lasting time.Duration, one func(seed uint64) []porcupine.Operation) (bad []porcupine.Operation) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	checked, unknown, size := 0, 0, 0
	for begin := time.Now(); time.Since(begin) < lasting; {
		history := one(rand.Uint64())
		switch porcupine.CheckOperationsTimeout(model, history, 5*time.Second) {
		case porcupine.Illegal:
			return history
		case porcupine.Unknown:
			unknown++
		}
		checked++
		size += len(history)
	}
	if checked == unknown {
		t.Errorf("no history could be checked in %v", lasting)
	}
	t.Logf("%d histories of %d operations on average; %d took too long to check", checked, size/max(1, checked), unknown)
	return nil
}

// text writes a history in the order of the calls.
func text(history []porcupine.Operation) string {
	history = slices.SortedFunc(slices.Values(history), func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, op := range history {
		fmt.Fprintf(&b, "%9d … %9d ns, worker %d: %s\n", op.Call, op.Return, op.ClientId, describe(op.Input, op.Output))
	}
	return b.String()
}

func describe(in, out any) string {
	i, o := in.(input), out.(answer)
	id := ""
	if i.id != 0 {
		id = fmt.Sprintf(" #%d", i.id)
	}
	switch {
	case i.what == "enter" || i.what == "hand over":
		return fmt.Sprintf("%s%s %d", i.what, id, i.n)
	case o.err != "":
		return fmt.Sprintf("%s%s %d: %s", i.what, id, i.n, o.err)
	case i.what == "in flight" || i.what == "waiting":
		return fmt.Sprintf("%s: %d", i.what, o.n)
	}
	return fmt.Sprintf("%s%s %d: %v", i.what, id, i.n, o.ok)
}

// spin passes a little time, or lets others run.
func spin(random *rand.Rand) {
	switch n := random.IntN(16); {
	case n == 0:
		runtime.Gosched()
	case n < 8:
		for range random.IntN(200) {
			random.Uint64()
		}
	}
}
