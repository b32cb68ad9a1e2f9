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
// [ForEach] calls a function for each item of an iter.Seq; [Map] also yields the result of the
// function. The input is read only when there is room for another item, so it may be endless. Items
// start in the order of the input. Each is retried as by [sluice.RetryValue].
//
// If items call several servers, Config.Group says which one. Then a server that is slow, paused or
// dead delays only its own items. When call after call to it fails, it is suspended, see [Suspend].
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
// A batch ends when its input ends. It ends early when its context is done, by [Config].Stop, Halt
// or [Suspend], when the log cannot be written, and when the gate rejects an item, and so all later
// ones: because it is closed, the deadline is too near, or the server requests too long a wait.
//
// A batch ends soon, which means that attempts in flight finish, without retries; or now: they are
// canceled.
package batch
