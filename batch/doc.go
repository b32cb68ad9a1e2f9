// Package batch makes a long list of calls through a gate. It can be killed at any moment and
// resumed later.
//
//	log, err := batch.OpenLog("run.jsonl", batch.LogConfig{Mode: batch.Resume})
//	…
//	defer log.Close()
//	err = batch.ForEach(ctx, gate, slices.Values(urls), fetch, batch.Config[string]{
//		Log:  log,
//		Halt: batch.Halt{FailPercent: 10},
//	})
//
// [ForEach] calls a function for each item of an iter.Seq; [Map] also yields its results. The input
// may be endless. Items start in its order, and are retried as by [sluice.RetryValue].
//
// If items call several servers, Config.Group says which one. A server that is slow, paused or dead
// then delays only its own items, and is suspended when call after call fails, see [Suspend].
//
// # Outcomes
//
//	ok          the function returned nil
//	failed      it returned an error, and there is no other attempt: the error is
//	            permanent, or the attempts, the time or the retry budget are used up;
//	            or its group is suspended
//	unfinished  neither: the batch ended first, or the gate rejected the call
//	skipped     according to the log there is nothing left to do
//
// A batch ends early when its context is done, by [Config].Stop, Halt or [Suspend], when the log
// cannot be written, and when the gate rejects an item, and so all later ones: it is closed, the
// deadline is too near, or the server requests too long a wait. It ends soon, which means that
// attempts in flight finish, without retries; or now: they are canceled.
package batch
