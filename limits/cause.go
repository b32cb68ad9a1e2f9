package limits

// A Cause names the limit that delays calls: one of the constants, or "limit" and the name of one
// of the further limits of a gate. It is empty if none is known.
type Cause string

const (
	ByRate        Cause = "rate"          // evenly spaced
	ByConcurrency Cause = "concurrency"   // until other calls are done
	ByPause       Cause = "pause"         // of the gate
	ByRetryBudget Cause = "retry budget"  // it was empty: see sluice.Stats.Spacing
	ByLearned     Cause = "learned limit" // of the server: see sluice.Adaptive
	BySlowStart   Cause = "slow start"    // of the first burst, or after a throttle; without a rate
	ByBackoff     Cause = "backoff"       // before a retry
	BySemaphore   Cause = "semaphore"     // that the gate shares with others
	ByParent      Cause = "parent"        // the Stats of the parent name the cause
)
