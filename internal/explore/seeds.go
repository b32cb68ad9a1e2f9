package main

import "github.com/sluice-go/sluice/internal/explore/overlay"

// rewritten are the packages whose code is explored, as directories.
var rewritten = []string{".", "semaphore", "internal/queue", "internal/schedule", "internal/flight", "internal/bell"}

// extra are files that are added to those packages. The clock of all queues is the only state
// that an execution would leave to the next.
var extra = map[string]string{
	"internal/queue/explored.go": `package queue

import (
	"github.com/sluice-go/sluice/internal/explore/sched"
	"github.com/sluice-go/sluice/internal/explore/sched/time"
)

func init() {
	sched.Rewritten = true
	sleep = func(time.Duration) bool { return false } // a timer does
	sched.OnReset(func() { theClock = clock{began: time.Now(), least: 5} })
}
`,
}

// seeds are bugs, each of which is found. The first two are those that the code once had.
var seeds = []overlay.Seed{
	{
		Name: "parent-kept", Scene: "parent-3", About: "a call of a gate with a parent ends and keeps the parent's permit",
		File: "permit.go",
		Old:  "\tif p.up != nil {\n\t\tp.up.first(released)",
		New:  "\tif p.up != nil && !sched.Seeded(\"parent-kept\") {\n\t\tp.up.first(released)",
	},
	{
		Name: "cost-kept", Scene: "cost-held", About: "a call ends and keeps its cost in flight",
		File: "permit.go",
		Old:  "\t\tg.room.cost.Add(-p.held)\n",
		New:  "\t\tif !sched.Seeded(\"cost-kept\") {\n\t\t\tg.room.cost.Add(-p.held)\n\t\t}\n",
	},
	{
		Name: "direct-parent-kept", Scene: "parent-1", About: "a call that no caller was ahead of ends in its gate and not in the parent",
		File: "parent.go",
		Old:  "\t\tgate.finish(since)\n",
		New:  "\t\tgate.finish(since)\n\t\tif sched.Seeded(\"direct-parent-kept\") {\n\t\t\treturn\n\t\t}\n",
	},
	{
		Name: "back-out-kept", Scene: "parent-raise-3", About: "a call that loses the parent's room keeps that of its own gate",
		File: "parent.go",
		Old:  "\t\tgate.room.calls.UncountPassed()\n\t\tgate.vacate()\n\t}\n}",
		New:  "\t\tgate.room.calls.UncountPassed()\n\t\tif !sched.Seeded(\"back-out-kept\") {\n\t\t\tgate.vacate()\n\t\t}\n\t}\n}",
	},
	{
		Name: "busy-too-early", Scene: "do-3", About: "the end of a call looks for waiting calls before it makes room",
		File: "turnstile.go",
		Old:  "\tt.room.calls.End()\n\tif t.queue.Busy() {",
		New:  "\tbusy := sched.Seeded(\"busy-too-early\") && !t.queue.Busy()\n\tt.room.calls.End()\n\tif !busy && t.queue.Busy() {",
	},
	{
		Name: "no-kick", Scene: "parent-1", About: "the end of a call does not wake a caller that waits at the head for the parent",
		File: "turnstile.go",
		Old:  "\t\tt.queue.Advance(t.queue.Now())\n\t\tt.queue.Kick()\n\t\tt.checkDrained()",
		New:  "\t\tt.queue.Advance(t.queue.Now())\n\t\tif !sched.Seeded(\"no-kick\") {\n\t\t\tt.queue.Kick()\n\t\t}\n\t\tt.checkDrained()",
	},
	{
		Name: "two-steps", Scene: "weigh-2", About: "room is looked for and taken in two steps",
		File: "limit.go",
		Old:  "\tif r.unit != Cost {\n",
		New:  "\tif r.unit != Cost && sched.Seeded(\"two-steps\") {\n\t\treturn r.has(n) && r.calls.Add(flight.Most)\n\t}\n\tif r.unit != Cost {\n",
	},
	{
		Name: "slot-lost", Scene: "do-3", About: "a call whose slot another call took keeps its place",
		File: "turnstile.go",
		Old:  "\tt.room.calls.UncountPassed()\n\tt.vacate()\n",
		New:  "\tt.room.calls.UncountPassed()\n\tif !sched.Seeded(\"slot-lost\") {\n\t\tt.vacate()\n\t}\n",
	},
	{
		Name: "cancel-keeps-place", Scene: "cost-held", About: "a canceled caller leaves and does not call the next",
		File: "internal/queue/advance.go",
		Old:  "\tq.giveUp(w)\n\tq.Advance(now)\n",
		New:  "\tq.giveUp(w)\n\tif !sched.Seeded(\"cancel-keeps-place\") {\n\t\tq.Advance(now)\n\t}\n",
	},
	{
		Name: "change-unheard", Scene: "raise-held", About: "a change does not reach waiting callers",
		File: "internal/queue/advance.go",
		Old:  "\tq.Advance(now)\n\tq.Kick()\n",
		New:  "\tif !sched.Seeded(\"change-unheard\") {\n\t\tq.Advance(now)\n\t\tq.Kick()\n\t}\n",
	},
	{
		Name: "old-places", Scene: "lower-3", About: "a lane opens with the concurrency of before",
		File: "internal/schedule/lane.go",
		Old:  "s.interval != interval || s.places != places",
		New:  "s.interval != interval || s.places != places && !(sched.Seeded(\"old-places\") && s.places > 0)",
	},
	{
		Name: "overtake", Scene: "do-3", About: "a lane stays open while a caller waits",
		File: "internal/queue/queue.go",
		Old:  "\t\tif q.front == nil {\n\t\t\tq.open = q.cfg.Latch.Open(0)",
		New:  "\t\tif q.front == nil || sched.Seeded(\"overtake\") && q.crowd == nil {\n\t\t\tq.open = q.cfg.Latch.Open(0)",
	},
	{
		Name: "close-in-two", Scene: "set-rate-3", About: "the closed word is written after it is read",
		File: "internal/schedule/lane.go",
		Old:  "\tw := Word(l.slots.Load().next.Swap(int64(closed)))\n",
		New:  "\tvar w Word\n\tif s := l.slots.Load(); sched.Seeded(\"close-in-two\") {\n\t\tw = Word(s.next.Load())\n\t\ts.next.Store(int64(closed))\n\t} else {\n\t\tw = Word(s.next.Swap(int64(closed)))\n\t}\n",
	},
	{
		Name: "granted-and-canceled", Scene: "semaphore-3", About: "permits that a caller got whose context has ended are not returned",
		File: "semaphore/semaphore.go",
		Old:  "\tif err != nil {\n\t\ts.giveBack(n)\n\t}\n",
		New:  "\tif err != nil && !sched.Seeded(\"granted-and-canceled\") {\n\t\ts.giveBack(n)\n\t}\n",
	},
	{
		Name: "no-hand-over", Scene: "crowd-3", About: "a permit goes to the crowd and wakes none of it",
		File: "semaphore/stock.go",
		Old:  "\tfor ; free < 0 && n > 0; free, n = free+1, n-1 {\n",
		New:  "\tfor ; free < 0 && n > 0 && !sched.Seeded(\"no-hand-over\"); free, n = free+1, n-1 {\n",
	},
}
