// Package batch makes a long list of calls through a gate, and can be killed
// at any moment and go on where it was.
//
//	log, err := batch.OpenLog("run.jsonl", batch.LogConfig{Mode: batch.Resume})
//	…
//	defer log.Close()
//	err = batch.ForEach(ctx, gate, slices.Values(urls), fetch, batch.Config[string]{
//		Log:  log,
//		Halt: batch.Halt{FailPercent: 10},
//	})
//
// [ForEach] calls a function for each item of an iter.Seq; [Map] yields what
// the function returned, too. The input is read when there is room for an item,
// so it may be endless, and a million items take no more memory than a thousand.
// Items leave in the order of the input; one is at the gate, one more is read.
// Each is retried as [sluice.RetryValue] does it.
//
// # What becomes of an item
//
//	ok          the function returned nil
//	failed      it did not, and there is no other attempt: the error was
//	            permanent, or attempts, time or the retry budget are used up
//	unfinished  neither: the batch came to an end before, or the gate refused
//	skipped     the log says that there is nothing left to do
//
// A batch ends when its input is over, and earlier when its context is done,
// when Config.Stop is closed, after the failures or successes that Config.Halt
// asks for, when the log cannot be written, and when an item is unfinished
// because the gate refuses: it is closed, the deadline of the context is too
// near, or the server asks for a longer wait than the policy allows. What is
// true for that item is true for those behind it. Ending soon lets the attempts in
// flight finish, and makes no other, not even a retry; ending now cancels them.
//
// # Three times of each call
//
// An item has the instant at which it should have left by the rate of the gate
// (intended), the one at which it did (sent), and the one at which it was over
// (done). From intended to sent is the queue's time, that of its attempts is
// the server's. A batch that notes only the time from sent to done looks best
// while the server stalls, because the calls that should have been made
// meanwhile are not counted; this is known as coordinated omission (G. Tene:
// How NOT to Measure Latency, 2013). Here they are late by as much as they are.
//
// # What it costs
//
// An item takes some 5 µs of a processor beside the call, and 8 µs with a log
// (go test -bench ForEach ./batch, 2.5 GHz, Go 1.26). After a million of them
// the heap has not grown, but by less than 1 MiB, which a test watches. A
// resumed log holds some 20 to 40 bytes for each key, however long the key is.
package batch
