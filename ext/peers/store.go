package peers

import (
	"context"
	"time"
)

// A Store connects the gates of several processes that call the same server, so that each takes a
// share of its limit and all use the limit that one of them learns: sluice.Adaptive.Peers. A
// sluiceredis.Store is one.
//
// The gates of one name form a group. A Store keeps a list of its members, divides the limit among
// them, and keeps the last reported news. If calls use several units, such as requests and tokens,
// each has a group, whose name is the gates' name and, except for the first, the unit.
type Store interface {
	// Exchange records the report of a gate, and returns the state of the group. A gate calls it at
	// most four times a second for each group, and no call waits for it. It must return when ctx is
	// done. After an error, the gate goes on with the share that it has.
	Exchange(ctx context.Context, group string, r Report) (Reply, error)
}

// A Report is the message of a gate to the other gates of its group.
type Report struct {
	ID string // of the gate, no other one has it

	// Want is the amount of the limit that the gate could use, in millionths per second, or
	// WantsAll. A gate that reports Leaves leaves the group until it reports again.
	Want int64

	// Admitted is the cost of all calls that were admitted to the gate so far, and Use its recent
	// rate per second, in millionths.
	Admitted, Use int64

	// Seen is the Stamp of the last reply, 0 if there was none. News are dropped if others have
	// come since: the limit that was learned first is nearest to the truth.
	Seen int64

	// News is the estimate of the gate since its last report, or nil. The first number is the rate
	// of the limit in millionths per second, and the others are for the gates only. Each is from 0
	// to 2⁵³.
	News []int64
}

const (
	WantsAll int64 = -1 // Report.Want: as much as it can get
	Leaves   int64 = -2 // Report.Want: the gate is closed, or not used any more
)

// Whole is the sum of the shares of a limit.
const Whole int64 = 1e9

// A Reply is the state of the group, for one gate.
type Reply struct {
	Peers int64 // the number of gates in the group

	// Share is the share of the limit that the gate may use, of Whole, which all shares together
	// never exceed, except before there are News. Due is the share that it should have: more than
	// Share if another gate, which still uses some of it, has to report first.
	Share, Due int64

	// Admitted is the cost admitted to all gates, counted from any beginning, with an estimate of
	// the cost admitted to the others since their last reports.
	Admitted int64

	News  []int64       // of the last report that had some; nil: there is none
	Stamp int64         // of that report: no two have the same
	Age   time.Duration // of that report
}
