package adaptive

// chance decides whether a rejection may mean nothing. Overloaded servers, and proxies,
// refuse some calls at random.
//
// # Is it chance?
//
// Once is: a rejection where none was expected changes nothing. If 1 call in 100 is rejected by
// chance, a second one follows within 25 calls in a fifth of all cases, but two within 7, or
// three within 32, are rare. A rate that has halved shows itself within 4 calls.
//
// Where single rejections are frequent, there are two explanations: chance, or a pace a little
// above the rate. A test decides: at nine tenths of the rate only chance still rejects. Where
// it does, expected rejections need a second one, too. A test waits until the pace is back after an
// incident: of 100 calls per second the incident left 6, at which a test took 31 s.
type chance struct {
	doubt    float64 // refusals of late; each of doubtCalls calls takes its share off
	suspect  int     // saturated calls since a rejection that may be chance; negative: none
	single   float64 // share of the calls that were rejected alone
	share    float64 // share rejected by chance, as the last test showed
	testing  bool
	calls    int  // since the test began or ended
	bad      int  // refused ones of them
	patience int  // calls before the next test
	strays   bool // rejections with a time may also be chance
	told     int  // refusals that came with a time to wait, at most 3
}

const (
	doubtCalls  = 25  // calls that take one rejection off the doubt
	doubtEnough = 1.7 // refusals that are not chance
	doubtSilent = 3.  // the same, if others said how long to wait and these did not
	doubtShare  = 2.5 // where a share is rejected by chance, a call takes that much of it off
	doubtNoisy  = 2.2 // rejections that are not chance where more than noisyMost is rejected by chance

	often     = .006 // single rejections that call for a test
	noisy     = .002 // share from which on all rejections must be confirmed
	noisyMost = .02  // share from which on two that are near each other are frequent
	testCalls = 200
	testPace  = .9
	patient   = 4000 // calls between tests
	impatient = 300  // before the first one
)

// Strays says that rejections with a time to wait may also be chance.
func (c *Controller) Strays() { c.chance.strays = true }

func (k *chance) init() { k.suspect, k.patience = -1, impatient }

// near is within how many calls a second rejection confirms the first: fewer if many are
// refused by chance.
func (k *chance) near() int {
	return int(max(6, min(25, .12/max(k.share, 1e-3))))
}

// call counts a saturated call.
func (k *chance) call(c *Controller) {
	k.single -= k.single / 500
	if k.suspect >= 0 {
		if k.suspect++; k.suspect > k.near() {
			k.suspect = -1
			k.single += 1. / 500
		}
	}
	k.doubt = max(0, k.doubt-max(1./doubtCalls, doubtShare*k.share))
	k.calls++
	switch {
	case k.testing && k.calls >= testCalls:
		k.testing = false
		k.share = float64(k.bad) / float64(k.calls)
		k.patience = patient
		if k.share < noisy {
			k.share, k.single = 0, 0
		}
		k.calls = 0
	case !k.testing && k.calls >= k.patience && c.phase == Tracking && !c.pace.returns() && (k.single > often || k.share > 0):
		k.testing, k.calls, k.bad = true, 0, 0
	}
}

// forgetTimes forgets that rejections came with a time to wait. Those of an incident did; the limit of the same server may
// name none, and then each of its rejections seemed to say less than usual, and was ignored.
func (k *chance) forgetTimes() { k.told = 0 }

// found records that share of the calls is rejected by chance.
func (k *chance) found(share float64) {
	k.share, k.doubt, k.suspect = share, 0, -1
	k.testing, k.calls, k.patience = false, 0, impatient
}

// may reports whether a rejection may be chance.
func (k *chance) may(expected bool, told bool) bool {
	k.bad++
	if told {
		k.told = min(3, k.told+1)
	}
	if k.testing {
		expected = false
	}
	silent := k.told == 3 && !told // it says less than the others did
	k.doubt++
	enough := doubtEnough
	switch {
	case silent:
		enough = doubtSilent
	case k.share > noisyMost:
		enough = doubtNoisy
	case expected:
		enough = 1
	}
	if told && !k.strays || k.doubt > enough || expected && k.share < noisy && !silent {
		k.suspect, k.doubt = -1, 0
		k.testing = false
		return false
	}
	k.suspect = 0
	return true
}
