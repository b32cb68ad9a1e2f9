// Package evidence decides whether answers that may mean "too many calls" mean that.
//
// # Is a bare 503 a rejection?
//
// Some servers reject a call with a status that others use for a failure: nginx's limit_req and
// limit_conn answer 503 with no header, Apache's mod_qos 500, others 403. A client that treats
// every 503 as a rejection slows down at each failure of a server without a limit. One that treats
// none as a rejection is rejected again and again, spends its retries and loses calls. One answer does
// not distinguish the two. The next answers of the server do:
//
//	                     a limit                          a failure
//	when                 in bursts, once the allowance    at any time
//	                     is used up
//	beside it            other calls are accepted          in an outage none are
//	calls made slowly    are accepted                      fail as often as others
//
// So a [Judge] watches, believes, or is certain:
//
//	watching   Unclear answers are failures. If half of the last 16 answers are unclear, and the
//	           server accepts calls that were made after the first of them, it begins to believe.
//	           One failure in 20 never looks like that, if as many as 14 of the last 32 must be
//	           unclear where few were before. (Early on 3 of 16 are a crowd: calls start
//	           slowly, and then 5 of 16 are enough.)
//	believing  Unclear answers are rejections, so the gate slows down. That is a trial of 2 to 10 s. If
//	           7 of the last 16 answers are unclear at its end, and 14 of the last 32,
//	           slowing down has not helped.
//	           Calls that are made clearly more slowly than the server has accepted calls between
//	           two unclear answers are a test (Wald 1945): a limit grants them, and failures do not
//	           care. If they are failures, the Judge was wrong, and is deaf for a minute and a quarter,
//	           twice as long each time. If slow calls fail far more often than others did, neither is
//	           true: there is another trial.
//	certain    Such calls are accepted, or hardly any call was unclear since the trial. If slow calls
//	           get unclear answers now, the limit may have become lower: there is another trial.
//
// A server that clearly rejected calls, and a few seconds later answers all of them unclearly, has
// banned the client, as fail2ban and some firewalls do with 403: for a minute, these answers are
// rejections, also while the Judge is deaf. Otherwise all calls of a batch would be lost within a
// second.
//
// Processes of one account share a limit. Then slow calls are rejected, too, if the others have used it
// up, which looks like failures. It comes in rows, however, and a failure says nothing about the next
// call; so an answer that comes after an unclear one is left out of the test: of failures that takes
// away the same share as of accepted calls. And to be deaf is costly there: two processes that were so
// for five minutes behind limit_req of nginx lost a fifth of their calls in a quarter of an hour, and
// with a minute and a quarter 1 in 25. An outage mostly is shorter than that.
//
// In both of the last states, calls that are accepted for half a minute although they are far apart
// show that the reason has passed: the estimate is forgotten. After an hour without an unclear
// answer so are certain findings. A server that accepts nothing any more is down, and its answers
// are failures.
//
// It does not find a limit that rejects less than a half of the calls, such as a cap on calls in
// flight that is only a little exceeded; and one of less than a call a second, or with a long
// window, because it looks as if it were down. Where others take most of a limit and do not slow
// down, calls fail however slowly they are made, and it finds that they do.
//
// Simpler rules failed. Rejections from the third of 16 on made a site slow that fails 1 call in 20,
// and left a server that is down with one call a second for minutes. A test that took any calls for
// slow which were made less often than before found real limits wrong: until a pace is found, many
// calls of a slower one are rejected, too. A test without a time was never over where the gate had
// become so slow that there were no answers.
package evidence

import (
	"math"
	"math/bits"
	"time"
)

// A Verdict is the meaning of an unclear answer.
type Verdict int

const (
	// Failure: the call failed.
	Failure Verdict = iota
	// Crowded: it failed, as far as is known, as many others did. Calls should start slowly until
	// more is known.
	Crowded
	// Refusal: the server rejected the call, because there are too many.
	Refusal
	// Mistaken: the call failed, and so did those before that were Crowded or a Rejection.
	Mistaken
)

const (
	few      = 3                // unclear ones of the last 16 answers that may be the beginning of many
	many     = 8                // that are no accident
	lateMany = 14               // of the last 32, unless early or often: 8 of 16 are an accident once in 10 million answers, if one in 20 fails
	often    = .15              // of the answers are unclear: 8 of 16 are enough. One failure in 20 is .09 of them, as Granted may be left out
	lately   = 256              // answers that it is a share of
	mostly   = .6               // the same: this share of all since the first, if they are as many
	still    = 5                // the same, once calls start slowly
	lull     = time.Second      // without an unclear answer
	several  = 2                // calls that must have been accepted meanwhile
	burstFor = 10 * time.Second // after a burst that ended at once, a few more are no accident: calls started slowly in between

	certainty   = 4.               // natural logarithm of the odds that end the test
	limited     = .03              // the share of calls made slowly that a limit rejects at most, for jitter
	alike       = .4               // and failures: so much of that of others, of which those are known first that failed
	leastShare  = .1               // and at least this
	trial       = 2 * time.Second  // and the time of
	fewGrants   = 20               // calls at the rate at which they were accepted, but at most
	mostTrial   = 10 * time.Second // this: then
	provenFor   = 10 * time.Second // after the trial, if there were
	provenCalls = 64               // answers; only
	rare        = .05              // of them are unclear, as at a pace that was found
	surely      = 3.               // standard deviations
	stillMany   = 7                // unclear ones of the last 16 answers are too many, and twice as many of 32
	slow        = .6               // of the best rate at which calls were accepted is slow
	fade        = .1               // of that rate, at each unclear answer to a slow call: it may have changed
	enough      = 8                // calls by which that rate is measured
	calm        = 8                // such calls in a row
	calmFor     = 30 * time.Second // and for so long: a pace that was found is nearer to that rate
	mostRow     = 4                // unclear answers in a row that count
	memory      = 256              // answers; then older ones count half

	banSoon = 5 * time.Second // after a clear rejection; one that is overtaken comes a little later
	mostBan = time.Minute

	downSoon   = time.Second      // without a grant since the first unclear answer
	downAfter  = 10 * time.Second // without one, for a limit that is believed
	downSurely = time.Minute      // for one that is certain: it may be a window
	downRow    = 6                // unclear answers in a row

	deafFor  = 75 * time.Second
	mostDeaf = time.Hour
	asleep   = time.Hour // after the last unclear answer nothing is certain any more
)

// A Judge has the evidence about the unclear answers of one server. The zero Judge knows nothing. It
// is not safe for use by multiple goroutines. Its times are since any fixed instant.
type Judge struct {
	state   state
	answers uint32  // the last ones, the latest lowest; 1: unclear
	share   float64 // of unclear ones, lately

	// These begin with an unclear answer after 16 clear ones and a lull.
	first   time.Duration // when it came
	unclear int           // such answers,
	crowded bool          // they were found to be many,
	burst   bool          // so many as are no accident,
	again   bool          // a burst ended at once not long ago
	after   int           // of these to calls that left after first
	grants  int           // other answers,
	since   int           // likewise

	lastGrant time.Duration // when the accepted call left that left last
	last      time.Duration // unclear answer
	row       int           // unclear answers since a call was accepted, also while j is deaf,
	rowFrom   time.Duration // when the first of them came
	rejected  time.Duration // when a call was clearly rejected last; 0: never
	accepted  time.Duration // lastGrant, if there was one

	test  test
	trial time.Duration // until when the finding is on trial

	deaf  time.Duration // until then answers are failures
	wrong int           // how often the finding was wrong
}

type state uint8

const (
	watching state = iota
	believing
	certain
)

// Grants reports whether calls were accepted since the first unclear answer, or together with it.
func (j *Judge) Grants() bool { return j.grants > 0 }

// Quiet reports whether Granted may be left out: nothing is believed, and there is no unclear answer
// among the last ones.
func (j *Judge) Quiet() bool { return j.latest() == 0 && j.state == watching && j.row == 0 }

// Deaf reports whether unclear answers are failures at now, whatever comes: j was wrong.
func (j *Judge) Deaf(now time.Duration) bool { return now < j.deaf }

// latest returns the last 16 answers.
func (j *Judge) latest() uint16 { return uint16(j.answers) }

// Granted tells j that a call which left at since was accepted, or failed for another, clear
// reason. It may be left out while j is Quiet. over reports that there is no limit any more: the
// server accepted many calls in a row, all far apart, so the cause of its rejections has passed,
// and estimates from it should be discarded.
func (j *Judge) Granted(now, since time.Duration) (over bool) {
	j.answers <<= 1
	j.share -= j.share / lately
	j.grants++
	if since > j.first {
		j.since++
	}
	j.lastGrant = max(j.lastGrant, since)
	j.accepted = max(j.accepted, since)
	j.row = 0
	j.learn(since, 0)
	if j.state == watching || j.test.calm < calm || since-j.test.calmFrom < calmFor {
		return false
	}
	*j = Judge{wrong: j.wrong}
	return true
}

// Rejected tells j that the server clearly rejected a call, such as with 429.
func (j *Judge) Rejected(now time.Duration) { j.rejected = max(1, now) }

// Unclear tells j that a call which left at since got an unclear answer, and returns its meaning.
// together reports that the call was in flight when the first such answer came: the same answer to
// many calls together is one piece of evidence. early says that it is among the first answers of
// the server, so it may be the first of many.
func (j *Judge) Unclear(now, since time.Duration, early bool) (v Verdict, together bool) {
	if j.state != watching && now-j.last > asleep {
		*j = Judge{wrong: j.wrong}
	}
	if j.row++; j.row == 1 {
		j.rowFrom = now
	}
	if j.Deaf(now) {
		if j.banned(now) {
			return Refusal, false
		}
		return Failure, false
	}
	if j.latest() == 0 {
		accepted := j.since
		if j.again = j.burst && j.last-j.first <= lull && now-j.last <= burstFor; !j.again {
			j.crowded, j.burst, accepted = false, false, 0
		}
		if j.unclear == 0 || now-j.last > lull {
			j.begin(now, since)
			j.since = accepted
		}
	}
	together = j.unclear > 0 && since <= j.first
	j.last = now
	j.unclear++
	j.share += (1 - j.share) / lately
	if since > j.first {
		j.after++
	}
	if j.state == watching || j.row <= mostRow { // while a server is down none of the two explanations holds
		j.answers = j.answers<<1 | 1
		j.learn(since, 1)
	}
	switch {
	case j.banned(now):
		return Refusal, together
	case j.down(now):
		return Failure, false
	case j.state == watching:
		return j.watch(early), together
	case j.test.odds() >= certainty && (j.state == certain || j.test.changed()):
		// The limit may have become lower, and calls are slow only compared with before.
		j.state, j.test, j.trial = believing, test{from: since}, now+mostTrial
	case j.refuted(now):
		j.refute(now)
		return Mistaken, false
	}
	return Refusal, together
}

// refuted reports whether the answers are failures. While this is only believed calls are slow,
// perhaps without a reason, and the rule that slows them down does so more with each such answer.
// So it has as long as the server takes to grant some calls. If many of the last answers are
// unclear then, slowing down has not helped. Without that, a server that fails seven of ten calls
// was asked once a minute for a quarter of an hour. A slow start goes up until the server rejects
// some calls in a row: 7 of 16 alone may be one such row, and one limit of 20 was taken for failures.
func (j *Judge) refuted(now time.Duration) bool {
	switch {
	case j.test.odds() >= certainty:
		return true
	case j.state == certain || now < j.trial:
		return false
	}
	return bits.OnesCount16(j.latest()) >= stillMany && bits.OnesCount32(j.answers) >= 2*stillMany
}

// begin begins to count, at an unclear answer after 16 clear ones and a lull: those that were
// granted of a crowd may come in a row, after those that were not.
func (j *Judge) begin(now, since time.Duration) {
	j.first, j.unclear, j.after, j.grants, j.since = now, 0, 0, 0, 0
	j.lastGrant = max(j.lastGrant, since)
	if j.state == watching {
		j.test = test{from: now}
	}
}

// watch judges an unclear answer while nothing is believed.
func (j *Judge) watch(early bool) Verdict {
	n := bits.OnesCount16(j.latest())
	atLeast := many
	if !early && !j.crowded && j.share < often {
		atLeast = lateMany
	}
	crowded := n >= many && bits.OnesCount32(j.answers) >= atLeast ||
		j.unclear >= atLeast && float64(j.unclear) >= mostly*float64(j.unclear+j.grants) ||
		j.crowded && n >= still || j.again && n >= few
	switch {
	case crowded && j.since >= several:
		j.state = believing
		apart := (j.last - j.first) / time.Duration(j.since)
		j.trial = j.last + min(mostTrial, trial+fewGrants*apart)
		return Refusal
	case j.grants == 0 && j.after >= many && j.last-j.first >= downSoon:
		return Mistaken // it is down: calls need not start slowly
	case crowded || early && n >= few:
		j.crowded, j.burst = true, j.burst || crowded
		return Crowded
	}
	return Failure
}

// down reports whether a server with a limit grants nothing any more.
func (j *Judge) down(now time.Duration) bool {
	patience := downAfter
	if j.state == certain {
		patience = downSurely
	}
	return j.state != watching && j.row >= downRow && now-j.lastGrant > patience
}

// banned reports whether the server grants nothing for a while, because it rejected calls before. A call
// alone may be forbidden, if others were granted since.
func (j *Judge) banned(now time.Duration) bool {
	return j.rejected > 0 && (j.rowFrom-j.rejected).Abs() <= banSoon && now-j.rowFrom <= mostBan &&
		(j.row > 1 || j.accepted < j.rejected)
}

// learn counts an answer for the test, unclear or not.
func (j *Judge) learn(since time.Duration, unclear float64) {
	j.test.count(since, unclear, j.state != watching, j.answers&2 != 0)
	if j.state != watching && (j.test.odds() <= -certainty || j.state == believing && j.proven(since)) {
		j.state, j.wrong = certain, 0
		j.test.slow = sample{} // from here on it may show that this has changed
	}
}

// proven reports whether hardly any call was unclear since the trial.
func (j *Judge) proven(since time.Duration) bool {
	all := j.test.all()
	return since > j.trial+provenFor && all.all >= provenCalls && all.unclear <= all.all*rare
}

// refute ends the belief.
func (j *Judge) refute(now time.Duration) {
	hold := mostDeaf
	if j.wrong < 6 {
		hold = min(hold, deafFor<<j.wrong)
	}
	*j = Judge{wrong: j.wrong + 1, deaf: now + hold, row: j.row, rowFrom: j.rowFrom, rejected: j.rejected, accepted: j.accepted}
}

// A test compares calls that were made slowly with the others.
type test struct {
	slow, fast sample

	// The best rate at which calls were accepted between two unclear answers. A limit was exhausted
	// at both, so it never grants more: a burst comes before the first.
	best float64
	from time.Duration // when the call of the first one left
	got  float64       // granted calls since then
	till time.Duration // when the last one of them left

	calm     int           // calls in a row that were made slowly and accepted
	calmFrom time.Duration // when the first of them left

	left [8]time.Duration // when the calls left whose answers came last
	next int              // the oldest of these
}

// A sample is a number of answers.
type sample struct{ all, unclear float64 }

// count counts an answer to a call that left at since. While nothing is believed calls are not
// made slowly. row says that the answer before was unclear.
func (t *test) count(since time.Duration, unclear float64, slowly, row bool) {
	span := since - t.left[t.next]
	t.left[t.next] = since
	t.next = (t.next + 1) % len(t.left)
	if since <= t.from {
		return
	}
	of := &t.fast
	if slowly && float64(len(t.left)) <= slow*t.best*span.Seconds() {
		of = &t.slow
		t.best *= 1 - unclear*fade
	}
	switch {
	case of == &t.fast || unclear > 0:
		t.calm = 0
	case t.calm == 0:
		t.calm, t.calmFrom = 1, since
	default:
		t.calm++
	}
	if !row {
		of.add(unclear)
	}
	if t.all().all > memory {
		t.slow, t.fast = t.slow.half(), t.fast.half()
	}
	t.measure(since, unclear)
}

// measure measures the rate at which calls are accepted.
func (t *test) measure(since time.Duration, unclear float64) {
	t.got += 1 - unclear
	t.till = max(t.till, since)
	if unclear > 0 && t.got >= enough {
		t.best = max(t.best, t.got/(t.till-t.from).Seconds()) // the unclear call may have left before most of them
		t.from, t.got = since, 0
	}
}

func (s *sample) add(unclear float64) { s.all, s.unclear = s.all+1, s.unclear+unclear }

func (s sample) half() sample { return sample{s.all / 2, s.unclear / 2} }

// odds returns the logarithm of the odds that calls made slowly fail as others do, and are not
// granted as by a limit.
func (t *test) odds() float64 {
	share := t.share()
	return t.slow.unclear*math.Log(share/limited) + (t.slow.all-t.slow.unclear)*math.Log((1-share)/(1-limited))
}

// changed reports whether calls made slowly got unclear answers far more often than others did. Failures do
// not care, so that is no sign of them. At nginx's limit_conn of 10 calls, 2 of 200 others were rejected.
// When an eleventh was tried, three in a row were, and the Judge was deaf: two thirds of the calls were lost,
// in one run of ten.
func (t *test) changed() bool {
	share := (t.fast.unclear + .5) / (t.fast.all + 1)
	mean := share * t.slow.all
	return t.slow.unclear > mean+surely*math.Sqrt(mean*(1-share))+.5
}

// all returns both samples together.
func (t *test) all() sample {
	return sample{t.slow.all + t.fast.all, t.slow.unclear + t.fast.unclear}
}

// share returns how often calls fail at least, if those made slowly fail as others do.
func (t *test) share() float64 { return max(leastShare, alike*(t.fast.unclear+.5)/(t.fast.all+1)) }
